"""Section: what tensors of a real model do."""

from __future__ import annotations

import math

import pandas as pd

from precision.report.ablation import SCALED, UNSCALED, ablation_rows
from precision.report.blocks import Cell, Field, Section, Table
from precision.report.limits import worst_rows
from precision.report.rows import SETTING, dtypes_of, label_settings
from precision.report.show import number, span
from precision.report.source import Source

# Raw scores of independent unit-variance q and k have standard deviation sqrt(d_k); on 1000 pairs or more the
# estimate is off by less than a tenth, so a larger deviation is not chance.
_TOLERANCE = 0.1


def make_section(source: Source) -> Section | None:
    """Sizes of the scores, and incidence by dtype; None when the run has no captured tensors."""
    rows = source.rows[source.rows["is_captured"]]
    if rows.empty:
        return None
    rows = rows.assign(label=label_settings(rows))
    calls = rows.sort_values("scale", key=lambda scale: scale != SCALED, kind="stable").drop_duplicates(SETTING)
    return Section(
        "captured", "Real tensors", (_judge_variance(calls),), (_sizes(calls.sort_index()), *_incidence(rows))
    )


def _judge_variance(calls: pd.DataFrame) -> str:
    factors = calls["raw_std"] / calls["d_k"].map(math.sqrt)
    wide = factors[(factors - 1).abs() > _TOLERANCE]
    if wide.empty:
        return "The unit-variance assumption holds: the raw scores have the standard deviation √d_k that it predicts."
    return (
        f"The unit-variance assumption does not hold in {len(wide)} of {len(calls)} calls: the raw scores have "
        f"{span(list(factors), number)} times the standard deviation √d_k that it predicts, "
        f"and reach {number(calls['raw_max'].max())}."
    )


def _sizes(calls: pd.DataFrame) -> Table:
    shown, left_out = worst_rows(calls, calls["raw_max"])
    fields = (
        Field("call", "text"),
        Field("module", "code"),
        Field("raw std"),
        Field("√d_k"),
        Field("raw max"),
        Field("logit std"),
        Field("logit max"),
    )
    lines: list[tuple[Cell, ...]] = [
        (
            call["label"],
            call["source"],
            call["raw_std"],
            math.sqrt(call["d_k"]),
            call["raw_max"],
            call["logit_std"],
            call["logit_max"],
        )
        for _, call in shown.iterrows()
    ]
    return Table(
        "Size of the scores. Raw is q·k over all pairs, masked ones too, as an unfused kernel computes them; "
        f"logits are scaled and masked, over the pairs that take part.{left_out}",
        fields,
        tuple(lines),
    )


def _incidence(rows: pd.DataFrame) -> list[Table]:
    unshifted = ablation_rows(rows)
    unshifted = unshifted[~unshifted["max_subtraction"]]
    if unshifted.empty:
        return []
    shares = unshifted.pivot_table(index="label", columns=["dtype", "scale"], values="nonfinite", sort=False)
    shares, left_out = worst_rows(shares, shares.max(axis=1))
    columns = [(dtype, scale) for dtype in dtypes_of(unshifted) for scale in (SCALED, UNSCALED)]
    fields = (
        Field("call", "text"),
        *(Field(f"{dtype}, {'scaled' if scale == SCALED else 'raw'}", "percent") for dtype, scale in columns),
    )
    lines = tuple((str(label), *shares.reindex(columns=columns).loc[label]) for label in shares.index)
    return [Table(f"Rows not finite in eager without max-subtraction.{left_out}", fields, lines)]
