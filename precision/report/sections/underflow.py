"""Section: weights that the dtype rounds to zero."""

from __future__ import annotations

import itertools
from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import PercentFormatter

from precision.report.ablation import SCALED, UNSCALED
from precision.report.blocks import Field, Figure, Section, Table
from precision.report.limits import MOST_SETTINGS, worst_rows
from precision.report.lines import draw_lines, draw_points, line_legend
from precision.report.rows import SETTING, dtypes_of, label_settings, width_family, worst_row
from precision.report.show import number
from precision.report.source import Source
from precision.report.theme import draw_svg


def make_section(source: Source) -> Section | None:
    """A property of the problem, whoever computes it; None when no weight rounds to zero."""
    rows = source.rows.drop_duplicates([*SETTING, "dtype", "scale"])
    rows = rows[rows["dtype"].isin(dtypes_of(rows))]
    if not (rows["weights_zero"] > 0).any():
        return None
    family = width_family(rows)
    captured = rows[rows["is_captured"] & rows["scale"].isin([SCALED, UNSCALED])]
    captured = captured.assign(label=label_settings(captured))
    calls = captured.groupby("label", sort=False)["lost"].max().reset_index()
    calls, left_out = worst_rows(calls, calls["lost"], MOST_SETTINGS)
    captured = captured[captured["label"].isin(calls["label"])]
    blocks: list[Figure | Table] = []
    if not (family.empty and captured.empty):
        blocks.append(
            Figure(
                name="weights-lost",
                svg=draw_svg(partial(_paint, family, captured), height=2.75),
                caption="Share of the softmax weights, positive in exact arithmetic, that round to 0 in the dtype: on "
                f"drawn inputs over d_k (a logarithmic axis), and on each call captured from a model.{left_out}",
                alt="The share of weights that round to zero, over d_k and by captured call, by dtype and scale.",
            )
        )
    return Section("underflow", "Weights lost to underflow", (_harm(rows),), (*blocks, *_table(captured, left_out)))


def _harm(rows: pd.DataFrame) -> str:
    worst = worst_row(rows, "weights_zero_mass_max")
    return (
        f"The worst row loses {number(worst['weights_zero_mass_max'])} of its weight of 1 "
        f"({worst['dtype']}, {worst['source_label']}, d_k {worst['d_k']:.0f}, scale {worst['scale']}): "
        + (
            "many weights vanish, but together they carry almost nothing."
            if worst["weights_zero_mass_max"] < 1e-3
            else "that is enough to see in the output."
        )
    )


def _paint(family: pd.DataFrame, captured: pd.DataFrame, canvas: Canvas) -> None:
    shown = pd.concat([rows for rows in (family, captured) if not rows.empty])
    dtypes = dtypes_of(shown)
    kinds = [(rows, draw) for rows, draw in ((family, draw_lines), (captured, draw_points)) if not rows.empty]
    panels = canvas.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, (rows, draw) in zip(panels, kinds, strict=True):
        draw(axes, rows, "lost", dtypes)
        axes.set(ylabel="", ylim=(-0.04, 1.04))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    panels[0].set_ylabel("weights that round to 0")
    line_legend(canvas, dtypes, list(dict.fromkeys(shown["scale"])))


def _table(captured: pd.DataFrame, left_out: str) -> list[Table]:
    if captured.empty:
        return []
    shares = captured.pivot_table(index="label", columns=["dtype", "scale"], values="lost", sort=False)
    mass = captured.groupby("label", sort=False)["weights_zero_mass_max"].max()
    columns = [pair for pair in itertools.product(dtypes_of(captured), (SCALED, UNSCALED)) if pair in shares]
    fields = (
        Field("call", "text"),
        *(Field(f"{dtype}, {'scaled' if scale == SCALED else 'raw'}", "percent") for dtype, scale in columns),
        Field("most weight lost in a row"),
    )
    lines = tuple((str(label), *shares.loc[label, columns], mass[label]) for label in shares.index)
    return [Table(f"Weights that round to 0 on the captured tensors, masked pairs left out.{left_out}", fields, lines)]
