"""Every claim: its right values, from theory or from a measurement made apart, and that its verdict can fall.

The claims are measured once, quickly. The measurement made apart is of 40 000 rows with four queries to a set of keys.
Tolerances are 3 %, more where the quick experiment is noisier, for the reason beside the value.
"""

import math
from collections.abc import Callable

import pandas as pd
import pytest

from precision.claims.claim import claims, in_order
from precision.claims.run import Finding, run_claims
from precision.experiments.evidence import Evidence

IDS = {
    "additive", "asymmetric", "fp16-secondary", "fp16-zero-gradient", "gradient-first", "half-overflow", "hard-routing",
    "heads-orthogonal", "independence", "invariant", "jacobian", "linear", "not-d", "not-d-model", "not-log", "one-hot",
    "peaked-example", "per-head", "q-k-gradients", "qk-norm-double", "quantised-k", "range-3", "real-tensors", "rope",
    "saturation-99", "sdpa-default", "shift-is-safe", "small-d", "stalls", "still-a-distribution", "streaming",
    "train-serve", "typical-11", "variance",
}  # fmt: skip
TRAINED = {"stalls", "gradient-first", "hard-routing", "invariant"}  # minutes of training; judged below on made values


@pytest.fixture(scope="module")
def found() -> dict[str, Finding]:
    return {finding.id: finding for finding in run_claims(sorted(IDS - TRAINED), quick=True)}


def test_the_ledger_is_complete() -> None:
    assert set(claims.names()) == IDS == set(in_order())


@pytest.mark.parametrize("id", sorted(IDS - TRAINED))
def test_the_verdict_is_the_expected_one(id: str, found: dict[str, Finding]) -> None:
    assert found[id].verdict == found[id].claim.expected, found[id].judgement.grounds


# id, quantity, setting, x: right value and relative tolerance
_P = "largest weight, mean"
_OFF = "off-peak |dL/ds|, median"
_TWICE = 1.0  # within a factor 2, for values that fall over thirty orders of magnitude
RIGHT = [
    *(("variance", "variance of q.k / d_k", "", d, 1.0, 0.03) for d in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)),
    ("typical-11", "standard deviation of q.k", "", 128, math.sqrt(128), 0.03),
    ("typical-11", "mean |q.k|", "", 128, 9.0, 0.03),
    ("peaked-example", "weight", "key 1 (score 0)", None, 1 / (3 + math.exp(11)), 1e-12),
    ("peaked-example", "weight", "key 3 (score 11)", None, 0.999950, 1e-6),
    ("saturation-99", _P, "1", 128, 0.854, 0.03),
    ("saturation-99", "largest weight, median", "1", 128, 0.948, 0.03),
    ("saturation-99", _P, "√d_k", 128, 0.107, 0.03),
    *(("jacobian", _OFF, "1", d, right, _TWICE) for d, right in
      ((4, 2e-3), (16, 4.1e-5), (64, 4.8e-9), (128, 2.1e-12), (256, 2.6e-17), (1024, 1.3e-33))),
    *(("jacobian", _OFF, "√d_k", d, 5.7e-3, 0.03) for d in (16, 64, 128, 256, 1024)),
    ("q-k-gradients", "norm of dq, median", "1", 128, 0.517, 0.1),  # falls steeply: .82 at 64, .20 at 256
    ("q-k-gradients", "norm of dq, mean", "1", 128, 1.53, 0.06),  # heavy-tailed
    ("q-k-gradients", "norm of dq, median", "√d_k", 128, 0.167, 0.03),
    ("not-d", "entropy / ln 64, mean", "d_k", 64, 0.998, 0.03),
    ("not-d-model", "variance of the logits", "√d_model", None, 1 / 8, 0.03),
    ("not-d-model", _P, "√d_model", None, 0.034, 0.03),
    ("not-d-model", _P, "√d_k", None, 0.107, 0.03),
    *(("not-log", _P, "ln d_k", d, right, 0.03) for d, right in
      ((64, 0.286), (128, 0.365), (256, 0.458), (512, 0.561))),
    ("range-3", "largest scaled logit of a row, mean", "measured", 64, 2.35, 0.03),
    ("range-3", "largest scaled logit of a row, mean", "measured", 1024, 3.23, 0.03),
    ("range-3", "largest scaled logit of a row, mean", "measured", 4096, 3.64, 0.03),
    ("train-serve", "relative change of the output", "divisor 1", None, 10.3, 0.03),
    ("train-serve", "relative change of the output", "divisor d_k", None, 0.73, 0.03),
    ("train-serve", "relative change of the output", "divisor √d_model", None, 0.60, 0.03),
    ("qk-norm-double", "variance of q.k / d_k", "L2", 64, 1 / 64**2, 0.05),
    ("qk-norm-double", "variance of q.k / d_k", "RMS", 64, 1.0, 0.05),
    ("qk-norm-double", "entropy / ln 64 after 1/sqrt(d_k)", "L2", 64, 1.0, 0.001),
    ("small-d", _P, "1", 4, 0.276, 0.03),
    ("small-d", _P, "√d_k", 4, 0.106, 0.03),
    *(("linear", _P, "elu + 1", d, right, 0.03) for d, right in ((16, 0.024), (64, 0.020), (256, 0.018))),
    ("quantised-k", "variance of K after / before", "int8 per token", None, 1.0001, 0.03),
    ("quantised-k", "variance of K after / before", "int4 per token", None, 1.015, 0.03),
    ("quantised-k", "variance of K after / before", "int8 per tensor", None, 1.0002, 0.03),
    ("quantised-k", "variance of K after / before", "int4 per tensor", None, 1.058, 0.03),
    *(("asymmetric", "variance of q.k", "q at 3, k normed", d, 9.0, 0.03) for d in (16, 64, 256)),
    ("half-overflow", "largest x with a finite exp(x)", "fp16", None, 11.0859, 1e-5),
    ("half-overflow", "largest x with a finite exp(x)", "bf16", None, 88.5, 1e-12),
    ("shift-is-safe", "weights that round to 0", "fp16, unscaled", None, 0.84, 0.03),
]  # fmt: skip


@pytest.mark.parametrize(("id", "quantity", "setting", "x", "right", "tolerance"), RIGHT)
def test_right_values(
    id: str, quantity: str, setting: str, x: float | None, right: float, tolerance: float, found: dict[str, Finding]
) -> None:
    assert found[id].seen.mean(quantity, setting, x) == pytest.approx(right, rel=tolerance)


@pytest.mark.parametrize(
    ("d_k", "right"), [(4, 0.0), (16, 0.018), (64, 0.19), (128, 0.333), (256, 0.478), (1024, 0.70)]
)
def test_shares_of_one_hot_rows(d_k: int, right: float, found: dict[str, Finding]) -> None:
    assert found["one-hot"].seen.mean("rows with largest weight ≥ .99", "1", d_k) == pytest.approx(right, abs=0.03)


@pytest.mark.parametrize(("d_k", "right"), [(64, 0.56), (128, 0.77), (256, 0.88), (1024, 0.95)])
def test_shares_of_weights_that_fp16_loses(d_k: int, right: float, found: dict[str, Finding]) -> None:
    seen = found["fp16-zero-gradient"].seen
    assert seen.mean("weights that round to 0, fp16", "1", d_k) == pytest.approx(right, abs=0.02)
    assert seen.mean("weights that round to 0, fp16", "√d_k", d_k) == 0


def test_counts_that_are_all_or_none(found: dict[str, Finding]) -> None:
    assert found["fp16-secondary"].seen.settings("rows that are not finite") == {
        "fp16, 1/sqrt(d_k), max-subtraction": 0,
        "fp16, 1/sqrt(d_k), no max-subtraction": 0,
        "fp16, unscaled, max-subtraction": 0,
        "fp16, unscaled, no max-subtraction": 1,
    }
    flat = found["still-a-distribution"].seen.settings("sum of weights, all scores 0")
    assert flat["fp16, 65536 keys"] == 0 and flat["fp16, 65504 keys"] == pytest.approx(1, rel=0.03)
    assert flat["fp32, 65536 keys"] == 1
    assert max(found["rope"].seen.line("largest relative change of a norm").values()) < 4e-15
    assert max(found["additive"].seen.line("variance of the scores", "additive").values()) < 1


def test_the_law_of_correlated_and_of_offset_components(found: dict[str, Finding]) -> None:
    seen = found["independence"].seen
    for rho in (0.3, 0.6, 0.9):
        assert seen.mean("mean of q.k / d_k", "correlation ρ", rho) == pytest.approx(rho, rel=0.03)
        assert seen.mean("variance of q.k / d_k", "correlation ρ", rho) == pytest.approx(1 + rho**2, rel=0.03)
    for m in (0.5, 1.0, 2.0):
        assert seen.mean("variance of q.k / d_k", "mean m", m) == pytest.approx(1 + 2 * m**2, rel=0.03)


def test_real_layers_are_between_9_and_30(found: dict[str, Finding]) -> None:
    seen = found["real-tensors"].seen
    layers = seen.line("raw standard deviation of a layer", "all pairs").values()
    assert len(layers) == 6
    assert min(layers) == pytest.approx(9, rel=0.05) and max(layers) == pytest.approx(30, rel=0.03)
    assert set(seen.line("raw standard deviation of a layer", "√d_k").values()) == {math.sqrt(32)}
    assert max(seen.line("largest |q.k| of a layer", "all pairs").values()) == pytest.approx(420, rel=0.03)


# Doctored experiments: the verdict falls when the values say something else.

Doctor = Callable[[pd.Series], float]


def scaled(factor: float) -> Doctor:
    return lambda row: row["value"] * factor


def to(value: float) -> Doctor:
    return lambda row: value


DOCTORED = [
    ("variance", "variance of q.k / d_k", "", scaled(1.1), "refuted"),
    ("typical-11", "standard deviation of q.k", "", scaled(0.8), "refuted"),
    ("peaked-example", "weight", "key 3 (score 11)", to(0.9), "refuted"),
    ("saturation-99", _P, None, lambda row: 0.99 if row["setting"] == "1" else 0.05, "confirmed"),
    ("one-hot", "rows with largest weight ≥ .99", "1", to(0.3), "refuted"),
    ("jacobian", _OFF, "1", to(5e-3), "refuted"),
    ("q-k-gradients", "norm of dq, mean", "1", scaled(0.01), "confirmed"),
    ("fp16-zero-gradient", "weights that round to 0, fp16", "1", to(0.01), "refuted"),
    ("not-d", "entropy / ln 64, mean", "d_k", to(0.8), "refuted"),
    ("not-d-model", None, "√d_model", scaled(10), "confirmed"),
    ("not-log", _P, "ln d_k", to(0.1), "refuted"),
    ("small-d", _P, "1", to(0.106), "confirmed"),
    ("range-3", "largest scaled logit of a row, mean", "measured", scaled(2), "refuted"),
    ("independence", "variance of q.k / d_k", "mean m", to(1.0), "refuted"),
    ("real-tensors", "raw standard deviation / √d_k, by head", None, to(1.0), "confirmed"),
    ("half-overflow", "scores that are infinite", "bf16", to(0.1), "confirmed"),
    ("fp16-secondary", "rows that are not finite", None, to(0.0), "confirmed"),
    ("shift-is-safe", "weights that round to 0", None, to(0.0), "confirmed"),
    ("still-a-distribution", "sum of weights, all scores 0", None, to(1.0), "confirmed"),
    ("streaming", "largest difference in fp64, against the row-wise softmax", None, to(1e-3), "refuted"),
    ("heads-orthogonal", "variance of q.k / d_k", "", lambda row: row["x"], "refuted"),
    ("per-head", "hidden size / query heads", "bert-base", to(768), "refuted"),
    ("sdpa-default", "share of output elements equal to the bit", "sdpa-math, fp16", to(0.5), "refuted"),
    ("train-serve", "relative change of the output", None, to(0.0), "refuted"),
    ("qk-norm-double", "variance of q.k / d_k", None, to(0.01), "confirmed"),
    ("asymmetric", "variance of q.k", None, lambda row: row["x"], "refuted"),
    ("linear", _P, "Performer, exp", to(0.02), "confirmed"),
    ("additive", "variance of the scores", "additive", lambda row: row["x"], "refuted"),
    ("quantised-k", "variance of K after / before", None, to(1.05), "confirmed"),
    ("rope", "largest relative change of a norm", "", to(0.01), "refuted"),
]


@pytest.mark.parametrize(("id", "quantity", "setting", "doctor", "verdict"), DOCTORED)
def test_doctored_values_change_the_verdict(
    id: str, quantity: str | None, setting: str | None, doctor: Doctor, verdict: str, found: dict[str, Finding]
) -> None:
    frame = found[id].seen.frame.copy()
    hit = (frame["quantity"] == quantity) if quantity else frame["quantity"].notna()
    if setting is not None:
        hit &= frame["setting"] == setting
    assert hit.any()
    frame.loc[hit, "value"] = frame[hit].apply(doctor, axis=1)
    assert verdict != found[id].claim.expected
    assert found[id].claim.judge(Evidence(frame)).verdict == verdict


def test_every_cheap_claim_is_doctored() -> None:
    assert {row[0] for row in DOCTORED} == IDS - TRAINED
