"""Section: the backward pass."""

from __future__ import annotations

import pandas as pd

from precision.report.blocks import Cell, Field, Section, Table
from precision.report.limits import worst_rows
from precision.report.ratios import YARDSTICK, ratios_to_yardstick
from precision.report.rows import groups_by, label_settings
from precision.report.show import factor_span, plural
from precision.report.source import Source

_GRADIENTS = ("dq", "dk", "dv")


def make_section(source: Source) -> Section | None:
    """Every case whose backward pass was asked for; None when none was."""
    rows = source.rows[source.rows["backward"] != ""]
    if rows.empty:
        return None
    rows = rows.assign(label=label_settings(rows))
    ran = rows[rows["backward"] == "ok"]
    tables = [_table(ran)] if not ran.empty else []
    if len(ran) < len(rows):
        tables.append(_holes(rows[rows["backward"] != "ok"]))
    return Section("gradients", "Gradients", tuple(_sentences(rows, ran)), tuple(tables))


def _sentences(rows: pd.DataFrame, ran: pd.DataFrame) -> list[str]:
    sentences = [f"The backward pass ran in {len(ran)} of {plural(len(rows), 'case')}."]
    finite = ran["rows_nonfinite"] == 0
    lost = ran[finite & (sum(ran[f"{name}_nonfinite"] for name in _GRADIENTS) > 0)]
    if not lost.empty:
        sentences.append(f"Finite output, gradients that are not: {plural(len(lost), 'case')}.")
    timed = ran[(ran["backward_latency"] > 0) & (ran["latency"] > 0)]
    if not timed.empty:
        factors = (timed["backward_latency"] / timed["latency"]).tolist()
        sentences.append(f"Both passes take {factor_span(factors)} the time of the forward pass alone.")
    return sentences


def _table(rows: pd.DataFrame) -> Table:
    shown, left_out = worst_rows(rows, rows[[f"{name}_rel_l2" for name in _GRADIENTS]].max(axis=1, skipna=False))
    shown = shown.assign(ratio=ratios_to_yardstick(shown, "backward_latency_samples", rows))
    fields = (
        Field("setting", "text"),
        Field("dtype", "text"),
        Field("method", "code"),
        *(Field(f"{name} relative error") for name in ("out", *_GRADIENTS)),
        Field("gradients not finite", "count"),
        Field("both passes", "seconds"),
        Field(f"vs {YARDSTICK} [99 %]", "text"),
    )
    lines: list[tuple[Cell, ...]] = [
        (
            row["label"],
            row["dtype"],
            row["method"],
            *(row[f"{name}_rel_l2"] for name in ("out", *_GRADIENTS)),
            sum(row[f"{name}_nonfinite"] for name in _GRADIENTS),
            row["backward_latency"],
            row["ratio"],
        )
        for _, row in shown.iterrows()
    ]
    caption = (
        "Relative errors against the fp64 gradients for dO ~ N(0, 1), elements of dq, dk and dv that are NaN or "
        f"infinite, and the latency of both passes with its factor to {YARDSTICK}.{left_out}"
    )
    return Table(caption, fields, tuple(lines), collapsed=len(lines) > 60)


def _holes(rows: pd.DataFrame) -> Table:
    lines: list[tuple[Cell, ...]] = [
        (method, len(group), reason) for (method, reason), group in groups_by(rows, "method", "backward")
    ]
    fields = (Field("method", "code"), Field("cases", "count"), Field("why there is no gradient", "text"))
    return Table("Every backward pass that did not run.", fields, tuple(lines))
