"""What lies in the folder of a report and is not the report's own is neither overwritten nor removed."""

import subprocess
from pathlib import Path

import pytest

from precision.errors import UsageError
from precision.report.folder import SUMS, require_free, write_files

FIRST = {"report.md": "one\n", "figures/a.svg": "<svg/>", "mine.toml": "x = 1\n"}


def content(out: Path) -> dict[str, str]:
    files = (path for path in out.rglob("*") if path.is_file() and path.name != SUMS)
    return {str(path.relative_to(out)): path.read_text() for path in files}


def test_a_later_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST)
    write_files(tmp_path, FIRST)
    second = {"report.md": "two\n", "figures/b.svg": "<svg/>"}
    write_files(tmp_path, second)
    assert content(tmp_path) == second


def test_the_list_is_one_that_sha256sum_checks(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST)
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK\n") == len(FIRST)


@pytest.mark.parametrize("name", list(FIRST))
@pytest.mark.parametrize("is_earlier", [True, False], ids=["edited since", "never a report's"])
def test_another_file_stays_and_nothing_is_written(tmp_path: Path, name: str, is_earlier: bool) -> None:
    if is_earlier:
        write_files(tmp_path, FIRST)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("by hand\n")
    before = content(tmp_path)
    with pytest.raises(UsageError, match=f"{name}' is no report's, or was changed since, .* --out"):
        write_files(tmp_path, {each: text + "more\n" for each, text in FIRST.items()})
    assert content(tmp_path) == before
    with pytest.raises(UsageError):
        require_free(tmp_path, {name: None})


def test_a_file_that_is_the_same_already_is_in_nobodys_way_and_stays_its_owners(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FIRST["mine.toml"])
    write_files(tmp_path, FIRST)
    (tmp_path / "mine.toml").write_text("x = 2\n")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        write_files(tmp_path, FIRST)
    write_files(tmp_path, {"report.md": "two\n"})
    assert content(tmp_path) == {"report.md": "two\n", "mine.toml": "x = 2\n"}


def test_a_figure_that_was_edited_is_not_removed(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST)
    (tmp_path / "figures" / "a.svg").write_text("by hand\n")
    write_files(tmp_path, {"report.md": "two\n"})
    assert content(tmp_path) == {"report.md": "two\n", "figures/a.svg": "by hand\n"}


def test_the_list_reaches_no_file_outside(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside.txt"
    outside.write_text("mine\n")
    write_files(out, {"report.md": "one\n"})
    digest = subprocess.run(["sha256sum", str(outside)], capture_output=True, text=True, check=True).stdout.split()[0]
    with (out / SUMS).open("a") as sums:
        sums.write(f"{digest}  ../outside.txt\n{digest}  {outside}\n")
    write_files(out, {"report.md": "two\n"})
    assert outside.read_text() == "mine\n"


def test_what_was_stopped_half_way_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, FIRST)
    second = {name: text + "more\n" for name, text in FIRST.items()}
    written = []

    def full(path: Path, text: str, **options: str) -> int:
        written.append(path)
        if len(written) == 3:  # the list, one file, and then the disk is full
            raise OSError(28, "No space left on device")
        return write(path, text, **options)

    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="No space left"):
        write_files(tmp_path, second)
    monkeypatch.undo()
    write_files(tmp_path, second)
    assert content(tmp_path) == second
