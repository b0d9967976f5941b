"""Verdict: which method is accurate, which is fast, where its error comes from, and whether all mean the same."""

from __future__ import annotations

import pandas as pd

from precision.report.ablation import SCALED
from precision.report.rows import dtypes_of, groups_by, worst_row
from precision.report.show import listed, number, percent, plural, ratio
from precision.report.verdict.noise import noise_of, timed_rows

# Different mathematics is off by far more, and rounding in fp64 by far less.
_SAME_FUNCTION = 1e-12

# Errors this near to each other differ by the draw of the inputs, not by the method.
_AS_ACCURATE = 1.1


def best_methods(rows: pd.DataFrame) -> str | None:
    """The most accurate and the fastest method of each dtype, over the problems that all of them solved.

    Where the samples scatter too much to rank methods, that instead.
    """
    timed = timed_rows(rows)
    methods = set(timed["method"])
    shared = timed[timed.groupby("problem")["method"].transform("nunique") == len(methods)]
    if len(methods) < 2 or shared.empty:
        return None
    if noise := noise_of(rows):
        return (
            f"The machine was busy: {noise}, so no method is called the fastest. Stop other programs, or set "
            "OMP_WAIT_POLICY=passive."
        )
    best, trades = [], []
    for (dtype,), of_dtype in groups_by(shared, "dtype"):
        medians = of_dtype.groupby("method")[["out_rel_l2", "latency"]].median()
        errors, latency = medians["out_rel_l2"], medians["latency"]
        accurate, fast = str(errors.idxmin()), str(latency.idxmin())
        if errors[fast] <= _AS_ACCURATE * errors[accurate]:
            best.append(f"{fast} in {dtype}")
        else:
            trades.append(
                f"In {dtype} {accurate} is the most accurate and {fast} the fastest "
                f"({ratio(latency[fast] / latency[accurate])} the latency, {ratio(errors[fast] / errors[accurate])} "
                "the error)."
            )
    if best:
        trades.insert(0, f"Fastest, and as accurate as any of {plural(len(methods), 'timed method')}: {listed(best)}.")
    return " ".join(trades)


def input_cast(rows: pd.DataFrame) -> str | None:
    """How much of the squared total error is there before any arithmetic: 1 - (arithmetic / total)^2."""
    scaled = rows[(rows["scale"] == SCALED) & (rows["rows_nonfinite"] == 0) & (rows["out_total_rms"] > 0)]
    scaled = scaled[scaled["dtype"].isin(["fp16", "bf16"])]
    problems = scaled.groupby("method")["problem"].transform("nunique")
    scaled = scaled[problems >= problems.max() / 2]  # a method that was tried on few problems compares with none
    if scaled.empty:
        return None
    share = (1 - (scaled["out_rms"] / scaled["out_total_rms"]) ** 2).clip(0, 1)
    middle = share.groupby(scaled["method"], sort=False).median().sort_values(ascending=False)
    each = [f"{percent(middle.iloc[place])} for {middle.index[place]}" for place in sorted({0, len(middle) - 1})]
    return (
        f"Of the squared error in {listed(dtypes_of(scaled))}, rounding the inputs makes {listed(each)}; "
        "the arithmetic makes the rest (median over the scaled problems)."
    )


def mathematics(rows: pd.DataFrame) -> str | None:
    """Whether every method computes the same function, which fp64 tells apart from rounding."""
    fp64 = rows[rows["dtype"] == "fp64"]
    if fp64.empty:
        return None
    largest = fp64["out_max_abs"].fillna(float("inf"))
    if largest.max() < _SAME_FUNCTION:
        return (
            f"In fp64 all {plural(fp64['method'].nunique(), 'method')} compute the same function: "
            f"the largest error of {plural(len(fp64), 'case')} is {number(largest.max())}."
        )
    wrong = worst_row(fp64.assign(out_max_abs=largest), "out_max_abs")
    return (
        f"In fp64 {wrong['method']} is off by {number(largest.max())} (mask {wrong['mask']}): "
        "that is another function, not rounding."
    )


def largest_error(rows: pd.DataFrame) -> str:
    """What can be said of any run."""
    worst = worst_row(rows, "out_rel_l2")
    if pd.isna(worst["out_rel_l2"]):
        return "Not one output element of this run is finite."
    return (
        f"The largest relative error is {number(worst['out_rel_l2'])}, of {worst['method']} in {worst['dtype']} "
        f"on {worst['inputs']}."
    )
