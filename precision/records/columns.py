"""The columns of a row: name, type, unit, meaning and which direction is better. The one table of them.

The store's schema, `precision list columns` and the documentation are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["identity", "errors", "total errors", "gradients", "incidence", "hazards", "cost"]
Better = Literal["lower", "higher", ""]

# Bounds are taken over whole key heads of at most so many (query, key) pairs, else over some rows of some heads: their
# matrices stay small, and a run takes little longer.
BOUND_PAIRS, GRADIENT_BOUND_PAIRS = 2**16, 2**18


@dataclass(frozen=True)
class Column:
    """One column of the table of rows."""

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    unit: str
    meaning: str
    group: Group
    better: Better = ""


def _errors(prefix: str, against: str, group: Group) -> tuple[Column, ...]:
    def column(name: str, type_: type[int] | type[float] | type[str], unit: str, meaning: str) -> Column:
        better: Better = "" if name in ("worst", "compared") else "lower"
        return Column(f"{prefix}_{name}", type_, unit, f"{meaning}, {against}", group, better)

    return (
        column("max_abs", float, "", "largest absolute error"),
        column("rms", float, "", "root mean square of the error"),
        column("rel_l2", float, "", "2-norm of the error over the 2-norm of the reference"),
        column("max_ulp", float, "ulp", "largest error in ulp of the dtype at the reference value"),
        column("median_ulp", float, "ulp", "median error in ulp"),
        column("p99_ulp", float, "ulp", "error in ulp that 99 % of the elements do not exceed"),
        column("bias_ulp", float, "ulp", "mean signed error in ulp; 0 is unbiased, so nearer to 0 is better"),
        column("not_close", int, "elements", "elements that torch.testing.assert_close refuses by default"),
        column("worst", str, "index", "(b, h, i, j) of the largest absolute error"),
        column("compared", int, "elements", "elements finite in both, over which the errors are taken"),
    )


def _over_bound(name: str, group: Group) -> Column:
    pairs = BOUND_PAIRS if name == "out" else GRADIENT_BOUND_PAIRS
    part = f"on a part of {pairs} query-key pairs"
    if name in ("dk", "dv"):
        part = f"on key heads of at most {pairs} query-key pairs, nowhere else"
    meaning = f"largest error of {name} over its worst-case bound for what the method rounds, {part}"
    return Column(f"{name}_error_over_bound", float, "", meaning, group, "lower")


def _gradient(name: str) -> tuple[Column, ...]:
    against = "against the fp64 gradient of the rounded inputs, for dO ~ N(0, 1)"
    nonfinite = Column(
        f"{name}_nonfinite", int, "elements", f"elements of {name} that are NaN or infinite", "gradients", "lower"
    )
    return (*_errors(name, against, "gradients"), nonfinite, _over_bound(name, "gradients"))


def _identity(name: str, type_: type[str] | type[int] | type[float] | type[bool], meaning: str) -> Column:
    return Column(name, type_, "", meaning, "identity")


COLUMNS: tuple[Column, ...] = (
    _identity("case", str, "key of the case: problem and method"),
    _identity("status", str, "ok, refused, absent, raised, timeout or crashed"),
    _identity("note", str, "the reason, when the status is not ok"),
    _identity("sweep", str, "the part of the configuration that asked for the case"),
    _identity("problem", str, "key of the problem"),
    _identity("method", str, "backend with its options"),
    _identity("backend", str, "name of the backend"),
    _identity("max_subtraction", bool, "whether the softmax subtracts the row maximum first"),
    _identity("inputs", str, "distribution of the inputs with its options"),
    _identity("source", str, "for captured inputs, where in the model the call was made"),
    _identity("dtype", str, "number format of q, k, v and the output"),
    _identity("mask", str, "which keys take part"),
    _identity("scale", str, "scale rule, or the number"),
    _identity("scale_value", float, "the multiplier of q.k"),
    _identity("batch", int, "batch size"),
    _identity("q_heads", int, "query heads"),
    _identity("kv_heads", int, "key and value heads"),
    _identity("q_len", int, "queries"),
    _identity("kv_len", int, "keys"),
    _identity("d_k", int, "width of q and k per head"),
    _identity("d_v", int, "width of v per head"),
    _identity("seed", int, "seed of the inputs"),
    _identity("revision", str, "for a kernel of your own, digest of its file; empty for others"),
    _identity("ran", str, "torch's attention operators that ran; empty for plain operations and other libraries"),
    _identity("device", str, "where it ran: cpu or cuda"),
    *_errors("out", "against fp64 attention of the rounded inputs (what the kernel did)", "errors"),
    _over_bound("out", "errors"),
    *_errors("out_total", "against fp64 attention of the unrounded inputs (what the format did, too)", "total errors"),
    Column("backward", str, "", "how the backward pass ended: ok, or a status with its reason", "gradients"),
    *_gradient("dq"),
    *_gradient("dk"),
    *_gradient("dv"),
    Column("elements_nan", int, "elements", "output elements that are NaN", "incidence", "lower"),
    Column("elements_posinf", int, "elements", "output elements that are +inf", "incidence", "lower"),
    Column("elements_neginf", int, "elements", "output elements that are -inf", "incidence", "lower"),
    Column("rows", int, "rows", "output rows that see at least one key", "incidence"),
    Column("rows_nan", int, "rows", "of those, rows with a NaN", "incidence", "lower"),
    Column("rows_inf", int, "rows", "of those, rows with an infinity", "incidence", "lower"),
    Column("rows_nonfinite", int, "rows", "of those, rows with either", "incidence", "lower"),
    Column("rows_masked", int, "rows", "rows in which every key is masked; in no other count", "incidence"),
    Column("rows_masked_wrong", int, "rows", "of those, rows whose output is not 0", "incidence", "lower"),
    Column("rows_nan_due", int, "rows", "rows that must be NaN, since an input is not finite", "incidence"),
    Column("rows_nan_lost", int, "rows", "rows that must be NaN and came out finite", "incidence", "lower"),
    Column("first_failure", str, "", "stage, value and (b, h, i, j) where it failed first, inferred", "incidence"),
    Column("mask_dtype", str, "", "dtype of the mask: bool or a format; empty without one", "hazards"),
    Column("mask_lowest", float, "", "lowest finite value of an additive mask", "hazards"),
    Column("masked_weight_max", float, "", "weight on keys whose mask is -9984 or less, worst row", "hazards", "lower"),
    Column("mask_warning", str, "", "what the mask does that its author may not expect", "hazards"),
    Column("pairs", int, "pairs", "query-key pairs that take part", "hazards"),
    Column("out_condition", float, "", "condition number: relative change of out for one of q, k and v", "hazards"),
    Column("logit_std", float, "", "standard deviation of the scaled and masked logits, fp64", "hazards"),
    Column("logit_max", float, "", "largest absolute logit, fp64", "hazards"),
    Column("raw_std", float, "", "standard deviation of q.k before scale and mask, fp64, masked pairs too", "hazards"),
    Column("raw_max", float, "", "largest absolute q.k before scale and mask, fp64, masked pairs too", "hazards"),
    Column("scores_over_before_scale", int, "pairs", "q.k infinite in the dtype, masked pairs too", "hazards", "lower"),
    Column("scores_over_after_scale", int, "pairs", "logits infinite in the dtype", "hazards", "lower"),
    Column("exp_inf_unshifted", int, "pairs", "exp(logit) infinite without max-subtraction", "hazards", "lower"),
    Column("rows_exp_inf_unshifted", int, "rows", "rows with such an exponential", "hazards", "lower"),
    Column("rows_sum_inf_unshifted", int, "rows", "rows whose sum of exp(logit) is infinite", "hazards", "lower"),
    Column("weights_zero", int, "pairs", "positive weights that the dtype rounds to 0", "hazards", "lower"),
    Column("weights_zero_mass_mean", float, "", "weight lost that way, mean over the rows", "hazards", "lower"),
    Column("weights_zero_mass_max", float, "", "weight lost that way, worst row", "hazards", "lower"),
    Column("peak_memory", int, "bytes", "largest memory held by one call, beyond its inputs", "cost", "lower"),
    Column("latency_first", float, "s", "first call, with what is set up only once", "cost", "lower"),
    Column("backward_latency_first", float, "s", "first forward and backward pass together", "cost", "lower"),
    Column("backward_latency_samples", str, "s", "JSON list of the warm samples of both passes together", "cost"),
    Column("latency_samples", str, "s", "JSON list of the warm samples, each the mean of a block of calls", "cost"),
    Column("threads", int, "", "CPU threads that torch used", "cost"),
)


def _latency(prefix: str, what: str) -> tuple[Column, ...]:
    return (
        Column(prefix, float, "s", f"median of the warm samples of {what}", "cost", "lower"),
        Column(f"{prefix}_low", float, "s", f"lower end of the 95 % interval of {prefix}", "cost"),
        Column(f"{prefix}_high", float, "s", f"upper end of the 95 % interval of {prefix}", "cost"),
        Column(f"{prefix}_count", int, "samples", f"number of warm samples behind {prefix}", "cost"),
    )


# Derived from the samples when rows are read, so that the raw values stay and the statistic can change.
LATENCY_COLUMNS: tuple[Column, ...] = (
    *_latency("latency", "the forward pass"),
    *_latency("backward_latency", "forward and backward pass together"),
)

BY_NAME = {column.name: column for column in COLUMNS}
