"""The report of a real run: its files, its pages, the lines that make a case again, hostile text and odd runs."""

import csv
import dataclasses
import html.parser
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from made_rows import RECORD, UNSHIFTED, make_frame_of, make_row
from small_run import measure_small_run

from precision.errors import UsageError
from precision.records.columns import COLUMNS, LATENCY_COLUMNS
from precision.report.blocks import Code
from precision.report.build import build_report
from precision.report.folder import SUMS
from precision.report.rows import measured_rows
from precision.report.sections import worst
from precision.report.source import Source
from precision.report.verdict import judge
from precision.report.write import write_report


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A real run: its store, its record and its rows."""
    return measure_small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    """The report of that run, and the paths of its files."""
    _, record, frame = small
    folder = tmp_path_factory.mktemp("report")
    return folder, write_report(record, frame, folder)


def test_verdict_of_a_real_run(small):
    verdict = judge(measured_rows(small[2]))
    assert 4 <= len(verdict) <= 7
    assert len(set(verdict)) == len(verdict)


def test_printed_lines_make_the_case_again(small):
    _, record, frame = small
    section = worst.make_section(Source(record, frame))
    codes = [block for block in section.blocks if isinstance(block, Code)]
    rows = measured_rows(frame)
    assert len(codes) == 4  # the largest error of three dtypes, and the one cause of rows that are not finite
    for code in codes:
        said = {}
        exec(code.text, said)
        problem, method = said["problem"], re.search(r'build\("(.*?)"\)', code.text)[1]
        row = rows[(rows["problem"] == problem_key(problem, rows)) & (rows["method"] == method)].iloc[0]
        assert said["incidence"].rows_nonfinite == row["rows_nonfinite"]
        if np.isnan(row["out_rel_l2"]):
            assert said["errors"] is None
        else:
            assert said["errors"].rel_l2 == pytest.approx(row["out_rel_l2"], rel=1e-9)
            assert said["errors"].max_abs == pytest.approx(row["out_max_abs"], rel=1e-9)


def problem_key(problem, rows):
    """The key in the run: a captured problem's also has the digest of its file."""
    same = (rows["inputs"] == problem.inputs) & (rows["dtype"] == problem.dtype) & (rows["scale"] == problem.scale)
    return rows.loc[same & (rows["d_k"] == problem.shape.d_k) & (rows["q_len"] == problem.shape.q_len), "problem"].iloc[
        0
    ]


def test_figures_are_small_themed_and_described(written, small):
    text = written[1].markdown.read_text(encoding="utf-8")
    figures = build_report(Source(*small[1:])).figures
    assert len(figures) == 8
    for figure in figures:
        assert len(figure.svg) < 150_000
        assert "prefers-color-scheme:dark" in figure.svg
        assert not re.search(r"#01020\d", figure.svg), "a role colour was left in place"
        assert figure.svg.count("<text") > 5, "text stays text"
        assert f"![{figure.alt}](figures/{figure.name}.svg)" in text
        assert figure.caption.endswith(".") and figure.alt.endswith(".")
        assert (written[0] / "figures" / f"{figure.name}.svg").read_text(encoding="utf-8") == figure.svg


class Page(html.parser.HTMLParser):
    """The tags and the addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.alts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.alts += [value for name, value in attrs if name == "alt"]


HOSTILE = '<script>alert("1")</script> | `x` **y** [z](http://example.org)\nnext'


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Pages of a run in which every text that a user controls is hostile."""
    hole = {**make_row(method=HOSTILE), "status": "raised", "note": HOSTILE}
    record = dataclasses.replace(RECORD, title=HOSTILE, environment={HOSTILE: HOSTILE})
    folder = tmp_path_factory.mktemp("hostile")
    paths = write_report(record, make_frame_of(make_row(), hole), folder)
    return paths.html.read_text(encoding="utf-8"), paths.markdown.read_text(encoding="utf-8")


def test_html_escapes(hostile):
    page = Page(hostile[0])
    assert "script" not in page.tags
    assert "http://example.org" not in page.addresses
    assert "&lt;script&gt;" in hostile[0]


def test_markdown_escapes(hostile):
    lines = hostile[1].splitlines()
    raised = next(line for line in lines if line.startswith("| raised"))
    assert len(re.findall(r"(?<!\\)\|", raised)) == 7  # six cells
    assert r"\<script\>" in raised and r"\[z\]" in raised
    assert lines[0].startswith(r"# \<script\>")


def test_html_is_one_file(written):
    page = Page(written[1].html.read_text(encoding="utf-8"))
    beside = {address for address in page.addresses if not address.startswith(("data:", "#"))}
    assert beside == {"rows.csv", "small.toml"}
    assert "script" not in page.tags
    assert len(page.alts) == 8 and all(page.alts)


def test_everything_is_under_the_folder_and_small(written):
    folder, paths = written
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files == {paths.markdown, paths.html, paths.rows, paths.config, *paths.figures, folder / SUMS}
    assert sum(path.stat().st_size for path in files) < 2_000_000


def test_the_rows_are_all_there(written, small):
    with written[1].rows.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = small[2]
    assert list(rows[0]) == [column.name for column in (*COLUMNS, *LATENCY_COLUMNS)]
    assert [row["case"] for row in rows] == frame["case"].tolist()
    assert float(rows[0]["out_rms"]) == frame["out_rms"].iloc[0]


def test_the_configuration_is_beside_the_report(written, small):
    assert written[1].config.read_text(encoding="utf-8") == small[1].config
    assert "precision run small.toml" in written[1].markdown.read_text(encoding="utf-8")


def test_same_bytes_in_another_process_and_without_torch(written, small, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom precision.records.store import Store\n"
        "from precision.report.write import write_report\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    record = store.runs.find()\n"
        "    write_report(record, store.rows.frame(record.id), Path(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules, 'the report imports torch'\n"
    )
    subprocess.run([sys.executable, "-c", code, small[0], tmp_path], check=True, timeout=120)
    folder, _ = written
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def holes_only(frame):
    identity = [column.name for column in COLUMNS if column.group == "identity"]
    return frame.assign(
        **{name: pd.Series(pd.NA, frame.index, frame[name].dtype) for name in frame if name not in identity},
        status="absent",
        note="not here",
    )


@pytest.mark.parametrize(
    "choose",
    [
        lambda frame: frame.iloc[:0],
        lambda frame: frame.iloc[:1],
        holes_only,
        lambda frame: frame[frame["sweep"] == "timed"],
        lambda frame: frame[frame["inputs"] == "captured[call=5]"],
        lambda frame: frame[frame["method"] == UNSHIFTED],
        lambda frame: frame[frame["scale"] == "none"],
        lambda frame: frame[(frame["rows_nonfinite"] == frame["rows"]).fillna(False)],
    ],
    ids=["empty", "one row", "holes", "timed", "one call", "one method", "one scale", "nothing finite"],
)
def test_any_run_has_a_report(small, choose, tmp_path):
    _, record, frame = small
    chosen = choose(frame)
    paths = write_report(dataclasses.replace(record, seconds={}, finished=None), chosen, tmp_path)
    text = paths.markdown.read_text(encoding="utf-8")
    assert "\n- " in text, "the verdict says something, or that nothing was measured"
    assert not re.search(r"\bnan\b|\bNone\b|<NA>", text)
    assert ("Holes" in text) == (chosen["status"] != "ok").any()
    assert text.count("![") == len(paths.figures)


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(UsageError, match="name another folder"):
        write_report(RECORD, make_frame_of(make_row()), taken)
