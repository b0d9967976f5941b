"""Names, titles and notes that are markup stay text: in HTML, in Markdown, in figures, on a terminal and in code."""

import dataclasses
import re
import sqlite3

import pandas as pd
import pytest
from bad_files import CONFIG, identity, make_runs, run
from made_rows import make_row

from precision.records.read_run import read_run
from precision.records.row import Row
from precision.records.store import Store
from precision.report.reproduce import lines_for
from precision.report.write import write_report

# What is shown

HOSTILE = "<script>alert('1')</script> | `x` **y** _z_ [t](http://example.org) $\\frac$ &lt; \\"
FILE = "$\\frac$<script>.safetensors"


@pytest.fixture(scope="module")
def hostile_pages(tmp_path_factory):
    """HTML, Markdown and figures of a measured run in which every name that can be hostile is."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [
        make_row(method=method, backend=HOSTILE, scale=scale, max_subtraction="=" not in method, inputs=inputs,
                 rows_nonfinite=50 * (scale == "none"), weights_zero=10, logit_std=std, backward="ok", d_k=d_k, d_v=d_k,
                 source=HOSTILE, ran=HOSTILE, latency_samples="[1.0, 1.1, 1.2]", problem=f"{inputs} {scale} {d_k}",
                 note=None)
        for method in ("eager", "eager[max_subtraction=false]", HOSTILE)
        for scale in ("sqrt_dk", "none")
        for inputs, std in (("normal", 1.0), ("large[std=4.0]", 4.0), (f"captured[call=0,file={FILE}]", 9.0))
        for d_k in (16, 64)
    ]  # fmt: skip
    with Store(folder / "s.sqlite") as store:
        number = store.runs.begin(HOSTILE, HOSTILE, CONFIG, HOSTILE, {HOSTILE: HOSTILE})
        for cells in rows:
            store.rows.add(number, {0: Row({name: value for name, value in cells.items() if value is not None})})
        store.rows.add(
            number,
            {0: Row({**identity(make_row(sweep=HOSTILE, method="<script>")), "status": "raised", "note": HOSTILE})},
        )
    paths = write_report(*read_run("1", folder / "s.sqlite"), folder / "out")
    return paths.html.read_text(), paths.markdown.read_text(), [path.read_text() for path in paths.figures]


def test_hostile_names_stay_text(hostile_pages):
    html, markdown, figures = hostile_pages
    assert len(figures) >= 4
    for page in (html, *figures):
        assert "<script" not in page and "<b>" not in page
        assert "alert" in page or "frac" in page or page not in figures
    assert "&lt;script&gt;" in html
    outside = "\n".join(markdown.split("```")[::2])  # of blocks of code
    bare = re.sub(r"\\.|(`+)(.+?)(?<!`)\1(?!`)", "", outside)  # without what is escaped and spans of code
    assert all(":" not in address for address in re.findall(r"\]\(([^)]*)\)", bare))
    assert not re.search(r"[<`&]|\*\*|\b_z_\b", re.sub(r"\]\([^)]*\)", "", bare))
    (raised,) = (line for line in outside.splitlines() if line.startswith("| raised"))
    assert len(re.findall(r"(?<!\\)\|", raised)) == 7  # six cells


def test_hostile_names_stay_text_on_a_terminal(here):
    store = here / "markup.sqlite"
    store.write_bytes((here / "store.sqlite").read_bytes())
    with sqlite3.connect(store) as db:
        db.execute("UPDATE rows SET method = '[/red]', note = '[bold]x[/bold]|y' WHERE status = 'refused'")
    db.close()
    shown = run("show", "--store", str(store))[1]
    assert "[/red]" in shown and "[bold]x[/bold]|y" in shown
    assert r"\[bold\]x\[/bold\]\|y" in run("show", "--format", "markdown", "--store", str(store))[1]


@pytest.mark.parametrize("scale", ["nan", "inf", "-inf", "0.0", "sqrt_dk"])
def test_lines_of_a_report_run_whatever_the_scale(scale):
    said = {}
    exec(lines_for(pd.Series(make_row(scale=scale, q_len=2, kv_len=2, d_k=4, d_v=4))), said)
    found = said["x"].scale
    assert str(found) == scale or (scale == "sqrt_dk" and found == 0.5)


def test_a_later_report_leaves_no_figure_of_an_earlier_one(tmp_path):
    make_runs(tmp_path / "s.sqlite")
    record, frame = read_run("1", tmp_path / "s.sqlite")
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    mine = out / "figures" / "mine.svg"
    mine.write_text("<svg/>")
    write_report(record, frame, out)
    assert {path.name for path in (out / "figures").iterdir()} >= {"mine.svg", "where-time-went.svg"}
    write_report(dataclasses.replace(record, seconds={}), frame.iloc[-1:], out)
    assert list((out / "figures").iterdir()) == [mine]
