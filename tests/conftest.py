"""Settings and fixtures that tests share. What they need is imported when they are, for most tests need none of it."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.fixture
def one_thread():
    """For small tensors: on busy cores threads would take longer to start than the work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one sound file of each kind."""
    from bad_files import make_folder

    return make_folder(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def here(folder, monkeypatch):
    """That folder as the current one."""
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """The configuration of a run with plain, differentiated and timed cases; `right` has its rows."""
    from scripts.kill_runs import CONFIG

    path = tmp_path_factory.mktemp("configuration") / "killed.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def right(config):
    """The rows of a run by one worker on this machine, which nobody disturbs."""
    from precision.sweep.run import execute
    from scripts.kill_runs import read_rows

    path = config.parent / "right.sqlite"
    execute(str(config), device="cpu", store=path)
    return read_rows(path)
