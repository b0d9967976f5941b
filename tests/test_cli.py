"""The command line: what it prints, where it writes, and one sentence with status 2 for every mistake."""

import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from precision import cli
from precision.checking.problems import PROBLEMS
from precision.records.columns import COLUMNS

Run = Callable[..., tuple[int, str, str]]
CONFIG = """
title = "A small run"
[[sweep]]
name = "ablation"
methods = ["eager", "eager[max_subtraction=false]", "sdpa-flash"]
scale = ["sqrt_dk", "none"]
dtype = ["fp32", "fp16"]
q_len = 16
d_k = 64
d_v = 32
"""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `precision` in an empty folder: status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["precision", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def small(command: Run) -> Run:
    """The same after a small run."""
    Path("small.toml").write_text(CONFIG)
    status, out, err = command("run", "small.toml", "--device", "cpu")
    assert (status, err) == (0, ""), err
    assert "12 cases (8 ok, 4 refused)" in out
    return command


def test_a_run_says_where_the_report_is_and_writes_nowhere_else(small: Run, tmp_path: Path) -> None:
    assert {path.name for path in tmp_path.iterdir()} == {"small.toml", ".precision", "reports"}
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {"small"}
    assert "A small run" in (tmp_path / "reports" / "small" / "report.md").read_text()


def test_a_report_goes_where_it_is_told(small: Run, tmp_path: Path) -> None:
    status, out, _ = small("report", "1", "--out", "elsewhere/deep")
    assert status == 0
    assert "elsewhere/deep/report.html" in out
    assert (tmp_path / "elsewhere" / "deep" / "report.html").is_file()


def test_a_report_overwrites_no_file_that_the_user_edited(small: Run, tmp_path: Path) -> None:
    assert small("report", "--out", ".")[0] == 0
    Path("small.toml").write_text(CONFIG + "# tried with more heads\n")
    Path("report.md").write_text("my notes")
    before = {path: path.read_bytes() for path in (tmp_path / "small.toml", tmp_path / "report.md")}
    for arguments in (("report", "--out", "."), ("run", "small.toml", "--out", ".")):
        status, _, err = small(*arguments)
        assert (status, err.count("\n")) == (2, 1)
        assert "'report.md' is no report's" in err and "not overwritten" in err and "--out" in err
    assert {path: path.read_bytes() for path in before} == before
    Path("report.md").unlink()
    status, _, err = small("report", "--out", ".")
    assert status == 2 and "'small.toml' is no report's" in err
    assert Path("small.toml").read_bytes() == before[tmp_path / "small.toml"]


def test_show_prints_tables_csv_json_and_markdown(small: Run) -> None:
    assert "eager[max_subtraction=false]" in small("show")[1]
    csv = pd.read_csv(io.StringIO(small("show", "--format", "csv", "--columns", "all")[1]))
    assert len(csv) == 12
    assert set(csv.columns) > {column.name for column in COLUMNS}
    rows = json.loads(small("show", "1", "--format", "json", "--columns", "status,note,out_max_abs")[1])
    assert [row["status"] for row in rows].count("refused") == 4
    assert {row["out_max_abs"] is None for row in rows if row["status"] == "refused"} == {True}
    assert small("show", "--format", "csv", "--columns", "case,dtype,case")[1].splitlines()[0] == "case,dtype"
    assert small("show", "--format", "markdown", "--columns", "case,dtype")[1].splitlines()[0].split("|")[1:3] == [
        " case             ",
        " dtype   ",
    ]


def test_runs_lists_what_the_store_holds(small: Run) -> None:
    status, out, _ = small("runs")
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("1 ")]
    assert "small" in line and "not finished" not in line


def test_the_findings_stand_on_the_terminal_first(small: Run) -> None:
    out = small("report", "1", "--out", "elsewhere")[1]
    assert out.startswith("- ")


def test_without_a_terminal_a_run_says_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from precision import progress

    said = []
    for silence in (1e9, -1.0):
        monkeypatch.setattr(progress, "_SILENCE", silence)
        progress._lines(progress.Console(stderr=True))(SimpleNamespace(done=2, cases=9))  # type: ignore[arg-type]
        said.append(capsys.readouterr().err)
    assert said == ["", "2 of 9 cases\n"]


def test_the_bar_cuts_words_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision import progress

    drawn = io.StringIO()
    console = progress.Console(file=drawn, width=80, force_terminal=True)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    with progress._bar("cases") as bar:
        bar.add_task("ablation: eager[max_subtraction=false] fp16", total=10500, completed=3800)
    assert "ablation: eager[" in drawn.getvalue()
    assert "3800/10500" in drawn.getvalue() and "0:00:00" in drawn.getvalue()


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_export_writes_what_show_prints(small: Run, name: str) -> None:
    assert small("export", name)[0] == 0
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    frame = read(name)
    assert frame["status"].value_counts().to_dict() == {"ok": 8, "refused": 4}


@pytest.mark.parametrize(
    "kind",
    [
        "kinds",
        "backends",
        "distributions",
        "masks",
        "scales",
        "dtypes",
        "presets",
        "configs",
        "columns",
        "recipes",
        "zoo",
        "problems",
        "published",
    ],
)
def test_every_kind_can_be_listed(command: Run, kind: str) -> None:
    status, out, _ = command("list", kind)
    assert status == 0
    assert len(out.splitlines()) > 2  # a header, a rule, and more


def test_every_problem_of_a_check_is_listed_with_what_it_tries(command: Run) -> None:
    lines = command("list", "problems")[1].splitlines()[2:]
    assert [line.split()[0] for line in lines] == [problem.name for problem in PROBLEMS]
    for line, problem in zip(lines, PROBLEMS, strict=True):
        assert problem.purpose and line.rstrip().endswith(problem.purpose)


MISTAKES = [
    (["rnu"], ["'run'"]),
    (["run", "--devise", "cpu"], ["--devise", "--device"]),
    (["run", "--device"], ["--device"]),
    (["run", "--device", "gpu"], ["'gpu'", "cuda"]),
    (["run", "defalt"], ["'defalt'", "'default'"]),
    (["run", "missing.toml"], ["missing.toml"]),
    (["run", "quick", "extra"], ["extra"]),
    (["show"], ["no store", "precision run"]),
    (["report", "one"], ["integer"]),
    (["show", "--format", "xml"], ["xml", "csv"]),
    (["list", "backend"], ["'backends'"]),
    (["export"], ["FILE"]),
    (["capture", "mimilm"], ["'mimilm'", "'minilm'"]),
    (["capture", "nowhere.py:model"], ["nowhere.py"]),
    (["check", "nowhere.py:attention"], ["nowhere.py"]),
    (["check", "math:sqrt", "--timeout", "0"], ["timeout", "above 0"]),
    (["check", "math:sqrt", "--budget", "nan"], ["budget", "above 0"]),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=lambda value: " ".join(value))
def test_a_mistake_is_one_sentence_and_status_2(
    command: Run, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("precision: ")
    assert err.count("\n") == 1
    assert all(word.lower() in err.lower() for word in words), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "--columns", "case,dtpye"], ["'dtpye'", "'dtype'"]),
        (["show", "2"], ["no run 2", "1 (small)"]),
        (["export", "rows.xlsx"], [".parquet", ".csv"]),
        (["export", "missing/rows.csv"], ["missing/rows.csv"]),
        (["report", "--out", "small.toml"], ["small.toml"]),
        (["run", "small.toml", "--store", "small.toml"], ["small.toml", "--store"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_mistake_leaves_the_store_alone(small: Run, arguments: list[str], words: list[str]) -> None:
    before = Path("small.toml").read_text(), small("show", "--format", "csv")[1]
    status, _, err = small(*arguments)
    assert (status, err.count("\n")) == (2, 1)
    assert all(word in err for word in words), err
    assert (Path("small.toml").read_text(), small("show", "--format", "csv")[1]) == before


def test_help_and_reading_import_no_torch(small: Run) -> None:
    script = """
import sys
from precision import cli
sys.argv = ["precision", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as end:
    assert not end.code, end.code
assert "torch" not in sys.modules, "torch was imported"
"""
    for arguments in (["--help"], ["show"], ["report"], ["export", "rows.csv"], ["version"]):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "works", "words"),
    [
        (
            ["run", "quick"],
            "precision.sweep.run.execute",
            "precision: stopped; what was measured is kept, and the same command goes on from there\n",
        ),
        (["check", "mine.py:attention"], "precision.checking.isolated.check_isolated", "precision: stopped\n"),
    ],
)
def test_a_stopped_command_says_what_is_kept(
    command: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], works: str, words: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(works, stop)
    assert command(*arguments) == (130, "", words)


def test_the_installed_command_begins_where_ctrl_c_is_minded() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"precision": "precision.entry:main"}


@pytest.mark.parametrize("module", ["precision.cli", "typer", "precision.sweep.run"])
def test_ctrl_c_while_python_imports_is_one_line(module: str, tmp_path: Path) -> None:
    """A signal that arrives when the module is about to be imported."""
    script = f"""
import os, signal, sys
from precision.entry import main

class Stop:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

assert "typer" not in sys.modules and {module!r} not in sys.modules
sys.meta_path.insert(0, Stop())
sys.argv = ["precision", "run", "quick"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr.startswith("precision: stopped") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_reader_that_leaves_is_no_error(small: Run) -> None:
    done = subprocess.run(
        f"{sys.executable} -m precision show --format csv --columns all | head -n 1",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.startswith("case,")
