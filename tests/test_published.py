"""Published results: every row in its quick form, the machinery that judges them, and what the command writes."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from precision import cli
from precision.errors import UsageError
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Value
from precision.published.published import Comparison, Target, published
from precision.published.run import Finding, reproduce, to_json
from precision.published.show import render
from precision.published.vectors import read_vectors
from precision.published.write import write_reproduction

NAMES = {
    "biased-rounding", "blanchard-higham", "fa3-budget", "fa3-table", "fa4-exp2", "golden-state", "overflow-law",
    "p-collapse", "pasa", "ranges",
}  # fmt: skip
QUICK = Effort(quick=True)


def test_every_result_is_here() -> None:
    assert set(published.names()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_quick_form_is_within_its_tolerances(name: str) -> None:
    (finding,) = reproduce([name], QUICK)
    missed = [c for c in finding.comparisons if not c.passed]
    assert finding.comparisons and not missed, missed


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_result_says_what_it_is(name: str) -> None:
    result = published.build(name)
    assert result.source and result.setup.endswith(".") and result.choices.endswith(".")
    sentence = (result.__doc__ or "").partition("\n")[0]
    assert sentence.endswith(".") and len(sentence) < 125
    for target in result.targets(QUICK):
        assert target.full <= target.quick  # the quick form is the looser one


# What judges


def compare(right: float, measured: float, tolerance: float, *, relative: bool = False) -> Comparison:
    target = Target("a", "s", right, tolerance, 2 * tolerance, relative=relative)
    return Comparison(target, measured, target.tolerance(Effort()))


def test_a_tolerance_is_a_distance_or_a_share() -> None:
    assert compare(10.0, 10.5, 0.5).passed and not compare(10.0, 10.6, 0.5).passed
    assert compare(-10.0, -10.9, 0.1, relative=True).passed and not compare(-10.0, -11.1, 0.1, relative=True).passed
    assert Target("a", "s", -10.0, 0.1, 0.2, relative=True).tolerance(QUICK) == 2.0
    assert compare(0.0, 0.0, 0.0).passed and not compare(0.0, 1e-300, 0.0).passed


@pytest.mark.parametrize("measured", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_never_passes(measured: float) -> None:
    assert not compare(0.0, measured, 1e9).passed


def made(measured: float) -> Finding:
    """`ranges` with a made value."""
    result = published.build("ranges")
    seen = Evidence.of([Value("a", "s", float("nan"), 0, measured)])
    return Finding("ranges", result, seen, (compare(1.0, measured, 0.1),), 0.1)


def test_json_fails_with_one_figure_that_is_missed() -> None:
    assert to_json([made(1.0)])["verdict"] == "pass"
    told = to_json([made(1.0), made(2.0)])
    assert told["verdict"] == "fail" and [row["verdict"] for row in told["rows"]] == ["pass", "fail"]
    value = told["rows"][1]["values"][0]
    assert (value["right"], value["measured"], value["tolerance"], value["verdict"]) == (1.0, 2.0, 0.1, "fail")
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    (lost,) = to_json([made(float("nan"))])["rows"][0]["values"]
    assert (lost["measured"], lost["verdict"]) == ("nan", "fail")


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'fa3-table'"):
        reproduce(["fa3-tabel"])


# The experiment with vectors


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Three vectors: one that overflows by its largest exponential, one by its sum, one that does not."""
    path = tmp_path / "logits.txt"
    path.write_text("12, 0, 0\n11 11 0\n1 2 3\n")
    return path


def test_a_file_of_vectors_is_taken(vectors: Path) -> None:
    (finding,) = reproduce(["blanchard-higham"], Effort(vectors=str(vectors)))
    overflowing = finding.seen.settings("vectors with an infinite exponential or sum")
    assert overflowing == {"unshifted": pytest.approx(2 / 3), "shifted": 0.0}
    assert finding.passed
    # The share of overflows is a matter of the file, and not held.
    assert ("unshifted", "vectors with an infinite exponential or sum") not in {
        (c.target.setting, c.target.quantity) for c in finding.comparisons
    }


def test_their_number_of_vectors_is_held_to_their_number_of_overflows(tmp_path: Path) -> None:
    overflowing = np.zeros((2500, 10))
    overflowing[:475, 3] = 12.0
    for count, passed in ((475, True), (474, False)):
        logits = overflowing.copy()
        logits[count:] = 0.0
        np.save(tmp_path / "logits.npy", logits)
        (finding,) = reproduce(["blanchard-higham"], Effort(vectors=str(tmp_path / "logits.npy")))
        assert finding.passed is passed


@pytest.mark.parametrize(
    ("text", "message"), [("1 2\n1\n", "no vectors"), ("1 x\n", "no vectors"), ("1 nan\n", "finite"), ("", "finite|no")]
)
def test_a_file_without_vectors(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_vectors(str(tmp_path / "bad.txt"))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_vectors("nowhere.txt")


def test_vectors_by_text_and_by_numpy_are_the_same(vectors: Path, tmp_path: Path) -> None:
    read = read_vectors(str(vectors))
    np.save(tmp_path / "logits.npy", read.numpy())
    assert torch.equal(read_vectors(str(tmp_path / "logits.npy")), read) and read.shape == (3, 3)


# The command


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["precision", "reproduce", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command_writes_what_it_measured_and_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert command(monkeypatch, "ranges", "--quick", "--json", str(tmp_path / "r.json"), "--out", str(tmp_path)) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["verdict"] == "pass" and [row["name"] for row in told["rows"]] == ["ranges"]
    assert "65504" in (tmp_path / "report.md").read_text()


def test_the_command_fails_when_a_figure_is_missed(monkeypatch: pytest.MonkeyPatch, vectors: Path) -> None:
    monkeypatch.setattr("precision.published.results.blanchard_higham.COUNT", 3)
    monkeypatch.setattr("precision.published.results.blanchard_higham.LENGTH", 3)
    # Two of the three vectors overflow, and not 475 in three.
    assert command(monkeypatch, "blanchard-higham", "--vectors", str(vectors)) == 1


def test_a_mistake_is_one_sentence_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "blanchard-higham", "--vectors", "nowhere.txt") == 2
    assert capsys.readouterr().err.startswith("precision: 'nowhere.txt' holds no vectors")
    assert command(monkeypatch, "range") == 2
    assert "did you mean 'ranges'" in capsys.readouterr().err


# What is written


def test_the_page_has_every_figure_its_choices_and_the_same_bytes(tmp_path: Path) -> None:
    findings = reproduce(["fa4-exp2", "ranges"], QUICK)
    first, again = (write_reproduction(findings, tmp_path / name) for name in ("a", "b"))
    for path in (first.markdown, first.html, first.measured, *first.figures):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert [path.stem for path in first.figures] == [path.stem for path in again.figures] == ["fa4-exp2"]
    markdown = first.markdown.read_text()
    assert "2 results of 2 made again" in markdown and "(figures/fa4-exp2.svg)" in markdown
    for finding in findings:
        assert finding.result.choices.split("[")[0] in markdown and f'id="{finding.name}"' in first.html.read_text()
    rows = pd.read_csv(first.measured)
    largest = rows.query("name == 'ranges' and quantity == 'largest finite number' and setting == 'fp16'")
    assert largest["mean"].item() == 65504


def test_the_page_names_what_was_missed(tmp_path: Path) -> None:
    markdown = write_reproduction([made(2.0)], tmp_path).markdown.read_text()
    assert "0 results of 1 made again" in markdown and "Not made again: ranges." in markdown


def test_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    render([made(1.0), made(2.0)])
    table = capsys.readouterr().out
    assert "pass" in table and "FAIL" in table
