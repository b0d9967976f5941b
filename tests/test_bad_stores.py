"""Bad stores, folders and disks: every command that reads or writes says so in one sentence and harms nothing."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from bad_files import CONFIG, TEXT, fuzz, make_runs, require_sound, run
from hypothesis import given
from hypothesis import strategies as st

import precision

# Stores

READERS = (["show"], ["show", "--format", "json"], ["report", "--out", "out"], ["compare", "1", "2"],
           ["export", "x.csv"], ["history"])  # fmt: skip


def read_with_every_command(store):
    """Every command that reads a store is sound; gives their statuses."""
    statuses = []
    for arguments in READERS:
        status, _, err = run(*arguments, "--store", str(store))
        require_sound(status, err)
        statuses.append(status)
    return statuses


@fuzz(30)
@given(st.data())
def test_a_spoilt_store_is_read_or_refused_and_left_alone(here, data):
    content = (here / "store.sqlite").read_bytes()
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            new = data.draw(st.binary(min_size=1, max_size=64))
            content = content[:at] + new + content[at + len(new) :]
    spoilt = here / "spoilt.sqlite"
    spoilt.write_bytes(content)
    status, _, err = run(*data.draw(st.sampled_from(READERS)), "--store", str(spoilt))
    require_sound(status, err)
    assert spoilt.read_bytes() == content


CELLS = st.one_of(
    st.none(), st.binary(max_size=4), TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(),
    st.sampled_from(["ok", "banana", "[]", "[1, 2, 3]", '["a"]', "{}", "NaN", "[" * 9999, "<script>", "../../x"]),
)  # fmt: skip


@fuzz(60)
@given(st.data())
def test_a_store_with_wrong_cells_is_read_or_refused(here, data):
    spoilt = here / "cells.sqlite"
    spoilt.write_bytes((here / "store.sqlite").read_bytes())
    with sqlite3.connect(spoilt) as db:
        for _ in range(data.draw(st.integers(1, 3))):
            table = data.draw(st.sampled_from(["rows", "runs"]))
            name = data.draw(st.sampled_from([record[1] for record in db.execute(f"PRAGMA table_info({table})")]))
            value = data.draw(CELLS)
            with contextlib.suppress(sqlite3.Error):  # not even SQLite takes it
                db.execute(f'UPDATE {table} SET "{name}" = ? WHERE rowid = 1', (value,))
    db.close()
    outside = set(here.parent.iterdir())
    status, _, err = run(*data.draw(st.sampled_from(READERS)), "--store", str(spoilt))
    require_sound(status, err)
    assert set(here.parent.iterdir()) == outside


def test_other_databases_are_refused_and_left_alone(here):
    def foreign(db):
        db.execute("CREATE TABLE rows (x)")

    def lacks_a_table(db):
        db.execute("DROP TABLE runs")

    def lacks_a_column(db):
        db.execute("ALTER TABLE runs DROP COLUMN environment")

    def newer(db):
        db.execute("PRAGMA user_version = 99")

    def another_program(db):
        db.execute("PRAGMA application_id = 77")

    for start, change in (
        (b"", foreign),
        (b"", another_program),
        *((None, c) for c in (lacks_a_table, lacks_a_column, newer)),
    ):
        path = here / "other.sqlite"
        path.write_bytes((here / "store.sqlite").read_bytes() if start is None else start)
        with sqlite3.connect(path) as db:
            change(db)
        db.close()
        before = path.read_bytes()
        assert read_with_every_command(path) == [2] * len(READERS), change.__name__
        status, _, err = run("run", "tiny.toml", "--device", "cpu", "--store", str(path))
        assert status == 2, change.__name__
        require_sound(status, err)
        assert path.read_bytes() == before, change.__name__


def test_an_empty_file_is_no_run_and_stays_empty(here):
    (here / "empty.sqlite").write_bytes(b"")
    assert read_with_every_command(here / "empty.sqlite") == [2] * len(READERS)
    assert (here / "empty.sqlite").read_bytes() == b""


# From the next program on, root has no more rights than the owner of a file: CAP_DAC_OVERRIDE is dropped.
OBEDIENT = """
import ctypes, os, sys
if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0):  # PR_CAPBSET_DROP
    raise OSError("the capability cannot be dropped")
os.execv(sys.executable, [sys.executable, "-m", "precision", *sys.argv[1:]])
"""


@pytest.mark.parametrize("store", ["store.sqlite", "new.sqlite"])
def test_a_folder_that_cannot_be_written(tmp_path, store):
    make_runs(tmp_path / "store.sqlite")
    (tmp_path / "tiny.toml").write_text(CONFIG)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in (*before, tmp_path):
        path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", OBEDIENT, "run", "tiny.toml", "--device", "cpu", "--store", store],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    tmp_path.chmod(0o755)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert store in done.stderr and "--store" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


LIMITED = """
import resource, signal, sys
from precision import cli
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cli.main()
"""


@pytest.mark.parametrize(
    ("size", "arguments"),
    [(20_000, ["run", "tiny.toml", "--device", "cpu", "--store", "new.sqlite"]), (100, ["export", "rows.csv"])],
    ids=["run", "export"],
)
def test_a_disk_that_is_full(here, size, arguments):
    kept = here / "store.sqlite"
    before = kept.read_bytes()
    if "--store" not in arguments:
        arguments = [*arguments, "--store", str(kept)]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert kept.read_bytes() == before


def test_an_output_that_is_full_or_knows_few_characters(here):
    command = [sys.executable, "-m", "precision", "compare", "1", "2", "--all", "--store", "store.sqlite"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "precision: [Errno 28] No space left on device\n")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")


# Where things are written


def files_under(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_run_writes_only_under_out_and_store(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work" / "tiny.toml").write_text(CONFIG)
    before = files_under(tmp_path), files_under(Path(precision.__file__).parents[1] / "precision")
    assert run("run", "tiny.toml", "--store", "../kept/s.sqlite", "--out", "../pages", "--device", "cpu")[0] == 0
    new = set(files_under(tmp_path)) - set(before[0])
    assert {path.relative_to(tmp_path).parts[0] for path in new} == {"kept", "pages"}
    sources = {path for path in files_under(Path(precision.__file__).parent) if "__pycache__" not in path.parts}
    assert sources == {path for path in before[1] if "__pycache__" not in path.parts}


def test_a_name_in_a_store_leads_nowhere(here, monkeypatch, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for name in ("../../escaped", str(tmp_path / "absolute"), "..", "", "a/b"):
        Path("s.sqlite").write_bytes((here / "store.sqlite").read_bytes())
        with sqlite3.connect("s.sqlite") as db:
            db.execute("UPDATE runs SET name = ?", (name,))
        db.close()
        assert run("report", "--store", "s.sqlite")[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}
    assert {path.name for path in Path().iterdir()} == {"s.sqlite", "reports"}


@pytest.mark.parametrize("body", ["import sys; sys.exit(3)", "1 / 0", "def f(:", "raise KeyboardInterrupt", "\0"])
def test_a_kernel_file_that_cannot_be_loaded(tmp_path, monkeypatch, body):
    monkeypatch.chdir(tmp_path)
    Path("beside.py").write_text("")
    Path("kernel.py").write_text(f"import beside\n{body}\ndef f(q, k, v): pass\n")
    status, _, err = run("check", "kernel.py:f")
    if "KeyboardInterrupt" in body:
        assert status == 130
    else:
        require_sound(status, err)
        assert status == 2 and "kernel.py:f" in err
    assert {path.name for path in tmp_path.iterdir()} == {"beside.py", "kernel.py"}
