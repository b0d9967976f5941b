"""Grids of many cases: what a page shows is bounded and says what it left out; scripts/big_grid.py measures 100,000."""

import re

import pandas as pd
import pytest
from made_rows import four_cells, make_rows
from made_store import config_text, make_store

from precision import compare
from precision.records import show
from precision.records.read_run import read_run
from precision.records.store import Store
from precision.report import limits, source, write
from precision.report.ablation import ablation_rows, pooled
from precision.report.blocks import Section, Table
from precision.report.limits import MOST_LINES, MOST_SETTINGS, one_point, shortened, worst_rows
from precision.report.rows import width_family
from precision.sweep.config import parse_config
from precision.sweep.grid import plan


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A store with two runs of some thousand rows."""
    path = tmp_path_factory.mktemp("big") / "store.sqlite"
    make_store(path, 2, ("first", "second"))
    return path


@pytest.fixture(scope="module")
def written(big, tmp_path_factory):
    """The report of the first run, whose rows are taken for too many to lie beside it."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_LARGEST_CSV", 100_000)
        return folder, write.write_report(*read_run("1", big), folder, store=big)


def test_the_plan_of_a_big_grid_is_the_product_of_its_axes():
    tasks = plan(parse_config(config_text(4)))
    ablation = [task for task in tasks if task.sweep == "ablation"]
    assert len(ablation) == 3 * 2 * 2 * 2 * 3 * 5 * 4
    assert len({task.problem.key for task in ablation}) == len(ablation)


def test_tables_and_figures_do_not_grow(written):
    folder, paths = written
    tables = [block for section in paths.report.sections for block in section.blocks if isinstance(block, Table)]
    assert max(len(table.rows) for table in tables) == MOST_LINES
    assert max(len(figure.svg) for figure in paths.report.figures) < 300_000
    assert len(paths.report.figures) == 9
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 4_000_000


def test_what_is_left_out_is_said(written):
    shortened = re.findall(r"Shown are the ([\w ]+?) (\d+) of ([\d,]+)\.", written[1].markdown.read_text())
    assert {which for which, _, _ in shortened} >= {"worst", "slowest", "most frequent"}
    assert all(int(shown) < int(of.replace(",", "")) for _, shown, of in shortened)


def test_rows_that_are_too_many_are_a_command_away(written, big):
    folder, paths = written
    assert paths.rows is None and not (folder / "rows.csv").exists()
    assert f"precision export rows.parquet --run 1 --store {big}" in paths.markdown.read_text()


def test_rows_of_an_earlier_report_do_not_stay(big, tmp_path, monkeypatch):
    record, frame = read_run("1", big)
    few = frame.iloc[:3]
    assert write.write_report(record, few, tmp_path).rows == tmp_path / "rows.csv"
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 3
    monkeypatch.setattr(source, "_LARGEST_CSV", 100)
    write.write_report(record, few, tmp_path)
    assert not (tmp_path / "rows.csv").exists()


def test_the_worst_keep_their_order_and_a_missing_size_is_the_worst():
    rows = pd.DataFrame({"name": list("abcde"), "size": [3.0, 1.0, None, 2.0, 5.0]})
    kept, said = worst_rows(rows, rows["size"], 3)
    assert kept["name"].tolist() == ["a", "c", "e"]
    assert said == " Shown are the worst 3 of 5."
    assert worst_rows(rows, rows["size"], 5)[1] == ""


def test_a_section_that_forgets_the_limit_is_shortened():
    table = Table("Many.", (), ((),) * (MOST_LINES + 1))
    (block,) = shortened(Section("s", "S", (), (table,))).blocks
    assert len(block.rows) == MOST_LINES
    assert block.caption == "Many. Shown are the first 200 of 201."


def test_settings_that_are_too_many_are_pooled_by_input_and_width():
    """Half of 100 rows at one seed and a quarter at the other: 75 of 200; the median of two errors is their mean."""
    few = [
        row
        for seed, count in ((0, 50), (1, 25))
        for row in four_cells([0, 0, 0, count], seed=seed, out_rel_l2=0.1 + seed)
    ]
    others = [row for d_k in range(1, MOST_SETTINGS) for row in four_cells([0, 0, 0, 1], d_k=d_k, d_v=d_k)]
    rows, said = pooled(ablation_rows(make_rows(*few, *others)))
    worst = rows[(rows["label"] == "normal, d 64") & (rows["scale"] == "none") & ~rows["max_subtraction"]]
    assert worst[["rows", "nonfinite"]].to_numpy().tolist() == [[200.0, 0.375]]
    assert worst["out_rel_l2"].tolist() == [pytest.approx(0.6)]
    assert rows["label"].nunique() == MOST_SETTINGS
    assert "together" in said and "Shown" not in said
    same, said = pooled(ablation_rows(make_rows(*few)))
    assert len(same) == 8 and said == ""


def test_widths_that_are_too_many_are_thinned_from_the_first_to_the_last():
    rows = make_rows(*(row for d_k in range(1, 101) for row in four_cells([0] * 4, d_k=d_k, d_v=d_k)))
    widths = sorted(width_family(rows)["d_k"].unique())
    assert len(widths) == 16
    assert (widths[0], widths[-1]) == (1, 100)


def test_points_that_are_too_many_become_medians(big):
    rows = build_rows(big)
    points, one = one_point(rows, "logit_std", "dtype", "method")
    assert len(points) < len(rows) / 5 and "median" in one
    assert len(points.drop_duplicates(["dtype", "method"])) == len(rows.drop_duplicates(["dtype", "method"]))
    few = rows.iloc[:10]
    assert one_point(few, "logit_std", "dtype", "method")[0] is few


def test_a_point_is_the_median_of_its_class(monkeypatch):
    monkeypatch.setattr(limits, "MOST_POINTS", 3)
    rows = pd.DataFrame({"size": [1.0, 1.01, 1.02, 100.0], "out_rel_l2": [3.0, 1.0, 2.0, 7.0], "method": "eager"})
    points, _ = one_point(rows, "size", "method")
    assert points[["size", "out_rel_l2"]].to_numpy().tolist() == [[1.01, 2.0], [100.0, 7.0]]


def build_rows(path):
    rows = source.Source(*read_run("1", path)).rows
    return rows[rows["out_rel_l2"] > 0]


def test_comparing_and_showing_a_big_run(big, capsys, monkeypatch):
    monkeypatch.setattr(show, "_MOST_LINES", 50)
    with Store(big) as store:
        cases = store.rows.frame(1)["case"].nunique()
    found = compare.compare_runs(read_run("1", big), read_run("2", big))
    assert len(found.rows) == cases
    show.render(found.rows, "table")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 50 + 3  # a header, a rule, and the sentence
    assert lines[-1] == f"and {cases - 50:,} more lines, which are not shown; `precision export` writes every row"
