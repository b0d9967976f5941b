"""Section: error against the size of the logits, on drawn and on captured tensors."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Canvas

from precision.formats import find_format
from precision.report.blocks import Cell, Field, Figure, Section, Table
from precision.report.limits import one_point, worst_rows
from precision.report.rows import SETTING, dtypes_of, groups_by, label_settings
from precision.report.show import number, ratio
from precision.report.source import Source
from precision.report.theme import MUTED, PAPER, draw_svg, log_axis, markers, method_legend, palette
from precision.spec import Spec

# Methods that agree would hide each other, so each is moved aside by this factor.
_DODGE = 1.07


def make_section(source: Source) -> Section | None:
    """Every measured case as a point; None when there are not two sizes of logits."""
    rows = source.rows
    rows = rows[(rows["out_rel_l2"] > 0) & (rows["logit_std"] > 0) & rows["dtype"].isin(dtypes_of(rows))]
    if rows["logit_std"].round(2).nunique() < 2:
        return None
    points, one = one_point(rows, "logit_std", "dtype", "method", "is_captured")
    figure = Figure(
        name="error-against-logits",
        svg=draw_svg(partial(_paint, points, source.methods), height=0.75 + 1.75 * rows["dtype"].nunique()),
        caption=f"{one}, one panel a dtype; lower is better, further right "
        "is harder. Hollow: a call "
        "captured from a model; filled: drawn inputs. The dashed line is one rounding, the dtype's unit roundoff. "
        "Relative error over the finite elements; both axes are logarithmic. Methods stand a little aside.",
        alt="Scatter plot of the relative error over the standard deviation of the logits, by dtype and method.",
    )
    return Section("logits", "Error against the size of the logits", tuple(_growth(rows)), (figure, *_table(rows)))


def _growth(rows: pd.DataFrame) -> list[str]:
    """What turning the logits up does, over the inputs of one kind that reach furthest."""
    drawn = rows[~rows["is_captured"] & (rows["rows_nonfinite"] == 0)]
    drawn = drawn.assign(kind=[Spec.parse(inputs).name for inputs in drawn["inputs"]])
    same = ["kind", "scale", *(column for column in SETTING if column != "inputs")]
    families = drawn.groupby(same)
    reach = families["logit_std"].transform("max") / families["logit_std"].transform("min")
    reach = reach.where(families["inputs"].transform("nunique") > 1, 0.0)
    if not reach.any():
        return []
    first = drawn[same].iloc[int(reach.to_numpy().argmax())]
    family = drawn[(drawn[same] == first).all(axis=1)].sort_values("logit_std")
    low, high = family.iloc[0], family.iloc[-1]
    factors = {}
    for (method, dtype), line in groups_by(family, "method", "dtype"):
        error = line.set_index("inputs")["out_rel_l2"]
        if low["inputs"] in error and high["inputs"] in error:
            factors[f"{method} in {dtype}"] = error[high["inputs"]] / error[low["inputs"]]
    if not factors:
        return []
    least, most = (choose(factors, key=lambda name: factors[name]) for choose in (min, max))
    return [
        f"Turning the standard deviation of the logits up from {number(low['logit_std'])} to "
        f"{number(high['logit_std'])} ({low['kind']}, d_k {low['d_k']:.0f}) changes the relative error by "
        f"{ratio(factors[least])} ({least}) to {ratio(factors[most])} ({most})."
    ]


def _paint(rows: pd.DataFrame, methods: list[str], canvas: Canvas) -> None:
    dtypes, colours, shapes = dtypes_of(rows), palette(methods), markers(methods)
    panels = canvas.subplots(len(dtypes), 1, sharex=True, squeeze=False)[:, 0]
    for axes, dtype in zip(panels, dtypes, strict=True):
        of_dtype = rows[rows["dtype"] == dtype]
        for (method, _), points in groups_by(of_dtype, "method", "is_captured"):
            aside = _DODGE ** (methods.index(method) - (len(methods) - 1) / 2)
            axes.plot(
                points["logit_std"] * aside, points["out_rel_l2"], linestyle="", marker=shapes[method], markersize=4.5,
                color=colours[method], markerfacecolor=PAPER if points["is_captured"].all() else colours[method],
            )  # fmt: skip
        axes.axhline(find_format(dtype).unit_roundoff, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        log_axis(axes, "x")
        log_axis(axes, "y")
        axes.set(ylabel="relative error", title=dtype)
    panels[-1].set_xlabel("standard deviation of the logits")
    method_legend(canvas, methods, columns=3)


def _table(rows: pd.DataFrame) -> list[Table]:
    """The hard settings in numbers: one line an input that is not the normal one, one column a method."""
    hard = rows[~rows["is_captured"] & (rows["inputs"] != "normal") & (rows["scale"] == "sqrt_dk")]
    if hard.empty:
        return []
    hard = hard.assign(label=label_settings(hard))
    methods = list(dict.fromkeys(hard["method"]))
    settings = hard.groupby(["label", "dtype"], sort=False)["out_rel_l2"].max().reset_index()
    settings, left_out = worst_rows(settings, settings["out_rel_l2"])
    hard = hard.merge(settings[["label", "dtype"]])
    lines: list[tuple[Cell, ...]] = []
    for (label, dtype), group in groups_by(hard, "label", "dtype"):
        error = group.set_index("method")["out_rel_l2"]
        lines.append((label, dtype, group["logit_std"].iloc[0], *(error.get(method) for method in methods)))
    fields = [Field("input", "text"), Field("dtype", "text"), Field("logit std"), *map(Field, methods)]
    caption = "Relative error on inputs made to be hard, scaled. A dash: not asked for, or no element is finite."
    caption += left_out
    return [Table(caption, tuple(fields), tuple(lines), collapsed=True)]
