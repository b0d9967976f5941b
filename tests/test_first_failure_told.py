"""A first failure as text, in a row of a run, and in the diagnosis of a kernel."""

import json
import math

import pandas as pd
import pytest
import torch

from precision.explain.attribution import Attribution
from precision.explain.diagnosis import diagnose
from precision.explain.fingerprint import Fingerprint, Likeness
from precision.explain.page import write_explanation
from precision.explain.question import Question
from precision.explain.show import render
from precision.inputs.find import build_inputs
from precision.numerics.failure import Failure, Place, Reach
from precision.sweep.measure import Bench
from precision.sweep.stopwatch import Stopwatch


def test_a_failure_as_text() -> None:
    failure = Failure(
        "s", "overflow", (Place((0, 2, 17, 33), 72135.0, math.inf),), 65520.0, 3, 2, (Reach("out", 64, 1),)
    )
    assert str(failure) == "s: 72135 -> inf, limit 65520, at (0, 2, 17, 33)"
    assert failure.sentence == (
        "Overflow at s: 72135 -> inf, limit 65520, at (0, 2, 17, 33); 3 values in 2 rows. "
        "NaN or infinite: out 64 elements in 1 row."
    )
    assert failure.to_json()["places"] == [{"index": (0, 2, 17, 33), "value": 72135.0, "became": "inf"}]


@pytest.mark.parametrize(
    ("inputs", "method", "text"),
    [
        ("zoo/scores-overflow", "eager", "s: {:.6g} -> inf, limit 65520, at (0, 0, 0, 0)"),
        ("zoo/scores-overflow", "sdpa-math", None),
        ("zoo/masked-row", "eager", "out: 0 -> nan at (0, 0, 2, 0)"),
        ("zoo/weights-underflow", "eager", "weights: 2.51074e-08 -> 0, limit 2.98023e-08, at (0, 0, 0, 1)"),
        ("zoo/nan-lost", "eager", "q: nan at (0, 0, 0, 0)"),
    ],
)
def test_a_row_of_a_run_holds_its_first_failure(inputs: str, method: str, text: str | None) -> None:
    (problem,) = Question(inputs).problems(["fp16"])
    row = Bench(torch.device("cpu"), Stopwatch()).measure_case(problem, method, backward=False)
    x = build_inputs(inputs).operands("fp16")
    score = float(x.q[0, 0, 0].double() @ x.k[0, 0, 0].double())
    assert row.cells.get("first_failure") == (text and text.format(score))


@pytest.fixture(scope="module")
def nearest() -> Fingerprint:
    """As if the search had been made."""
    return Fingerprint("eager", (Likeness("fp16", "nearest", "all in fp16", 0.999, 1e-6, "staged[plan=eager]"),), ())


def test_the_diagnosis_of_a_kernel_that_fails(nearest: Fingerprint) -> None:
    (found,) = diagnose("eager", nearest.nearest, Question("zoo/scores-overflow"))
    cost, failure = found.sentences
    assert "no stage's share" in cost and "out is not finite" in cost
    assert failure.startswith("fp16: first failure: Inferred. Overflow at s: ")
    assert found.failures[0].first.index == found.plan_failures[0].first.index


def test_the_diagnosis_of_one_that_does_not(nearest: Fingerprint, tmp_path, capsys) -> None:
    question = Question(q_len=8, kv_len=16, d_k=16, scale="dk", backward=True, error="arithmetic")
    diagnoses = diagnose("eager", nearest.nearest, question)
    (found,) = diagnoses
    assert str(found.problem) == "normal b1 h2 n8x16 d16 fp16 mask=none scale=dk"
    assert isinstance(found.attribution, Attribution) and set(found.attribution.total) == {"out", "dq", "dk", "dv"}
    most = max(found.attribution.of("out"), key=lambda part: part.share)
    assert found.sentences[0].startswith(f"fp16: {most.group}") and "first failure: none" in found.sentences[1]
    render(nearest, diagnoses, lines=3)
    assert capsys.readouterr().out.startswith("eager in fp16 behaves like: all in fp16")
    pages = write_explanation(nearest, diagnoses, tmp_path, question.command("eager", ["fp16"]))
    text = pages.markdown.read_text()
    assert "--q-len 8 --kv-len 16 --d-k 16 --error arithmetic --backward" in text and "attribution-fp16.svg" in text
    assert len(pd.read_csv(pages.measured)) == len(found.attribution.contributions)
    json.dumps(found.to_json(), allow_nan=False)


def test_a_kernel_that_refuses_the_problem(nearest: Fingerprint) -> None:
    (found,) = diagnose("sdpa-efficient", nearest.nearest, Question(q_len=4, kv_len=4, d_k=8))
    assert isinstance(found.failures, str) and "does not take this problem" in found.sentences[1]
