"""Section: torch's SDPA backends side by side, forward and backward."""

from __future__ import annotations

import pandas as pd

from precision.report.blocks import Cell, Field, Figure, Section, Table
from precision.report.comparison import compare_backends, is_comparison, timed_setting
from precision.report.limits import worst_rows
from precision.report.pareto import draw_pareto, front
from precision.report.ratios import YARDSTICK
from precision.report.rows import dtypes_of
from precision.report.show import distinct, listed, plural
from precision.report.source import Source

_LINE = ["dtype", "method"]
_COST = ["latency", "ratio", "peak_memory", "backward_latency", "backward_ratio"]


def make_section(source: Source) -> Section | None:
    """Backend by dtype: what ran, its error, what is not finite, its cost; None when the run compares no backends."""
    frame = source.frame[~source.frame["inputs"].str.startswith("zoo/")]
    if not is_comparison(frame) or source.rows.empty:
        return None
    timed = timed_setting(source.rows)
    lines = compare_backends(frame, source.rows).merge(timed[[*_LINE, *_COST]], on=_LINE, how="left")
    setting = timed["label"].iloc[0] if len(timed) else "no problem"
    sentences = [f"{plural(lines['method'].nunique(), 'method')} on {plural(frame['problem'].nunique(), 'problem')}."]
    blocks: list[Figure | Table] = []
    drawn = timed[timed["out_rms"] > 0]
    if not drawn.empty:
        sentences.append(_best(drawn, setting))
        blocks.append(_pareto(drawn, setting, source.methods))
    blocks.append(_forward(lines, setting))
    if frame["backward"].notna().any():
        blocks.append(_backward(lines, setting))
    if (frame["status"] != "ok").any() or _refused_backward(frame).any():
        blocks.append(_why_not(frame))
    return Section("backends", "SDPA backends", tuple(sentences), tuple(blocks))


def _best(drawn: pd.DataFrame, setting: str) -> str:
    each = [f"{listed(list(front(drawn[drawn['dtype'] == dtype])['method']))} in {dtype}" for dtype in dtypes_of(drawn)]
    return f"Beaten by no other method in both error and latency ({setting}): {'; '.join(each)}."


def _pareto(drawn: pd.DataFrame, setting: str, methods: list[str]) -> Figure:
    return Figure(
        name="pareto",
        svg=draw_pareto(drawn, methods),
        caption=f"{setting}. One point a method; nearer to the lower left is better. The steps join the methods that "
        "no other one beats in both, and all above and to the right of them is beaten.",
        alt="Scatter plot of the rms error over the latency, by dtype and method, with the Pareto front.",
    )


def _forward(lines: pd.DataFrame, setting: str) -> Table:
    fields = (
        Field("dtype", "text", narrow="above"),
        Field("method", "code"),
        Field("solved", "text"),
        Field("ran", "text", narrow="spare"),
        Field("ulp, 99 %"),
        Field("error vs eager", "text"),
        Field("rows not finite", "count"),
        Field("latency", "seconds"),
        Field(f"vs {YARDSTICK} [99 %]", "text"),
        Field("peak memory", "bytes", narrow="spare"),
    )
    columns = ("ran", "p99_ulp", "to_eager", "rows_nonfinite", "latency", "ratio", "peak_memory")
    caption = (
        "Forward pass. Error in ulp that 99 % of the elements do not exceed, median over the problems; rms error over "
        f"that of same-dtype eager, median and worst; latency and peak memory on {setting}."
    )
    return Table(caption, fields, _cells(lines, "solved", columns), printed=True)


def _backward(lines: pd.DataFrame, setting: str) -> Table:
    fields = (
        Field("dtype", "text", narrow="above"),
        Field("method", "code"),
        Field("solved", "text"),
        Field("ulp, 99 %"),
        Field("error vs eager", "text"),
        Field("elements not finite", "count"),
        Field("both passes", "seconds"),
        Field(f"vs {YARDSTICK} [99 %]", "text"),
    )
    columns = ("gradients_p99_ulp", "gradients_to_eager", "gradients_nonfinite", "backward_latency", "backward_ratio")
    caption = (
        "Backward pass: of dq, dk and dv the one with the largest error, as above; elements of all three that are not "
        f"finite; latency of both passes on {setting}."
    )
    return Table(caption, fields, _cells(lines, "differentiated", columns), printed=True)


def _cells(lines: pd.DataFrame, solved: str, columns: tuple[str, ...]) -> tuple[tuple[Cell, ...], ...]:
    lines = lines.astype(object).where(lines.notna(), None)
    return tuple(
        (line["dtype"], line["method"], f"{line[solved]} of {line['asked']}", *(line[name] for name in columns))
        for _, line in lines.iterrows()
    )


def _why_not(frame: pd.DataFrame) -> Table:
    """Holes of both passes; dtypes and problems with the same reason share a line."""
    holes = frame[frame["status"] != "ok"].assign(part="forward")
    backward = frame[_refused_backward(frame)].assign(part="backward")
    words = backward["backward"].str.split(": ", n=1)
    backward = backward.assign(status=words.str[0], note=words.str[1])
    alike = pd.concat([holes, backward]).groupby(["method", "part", "status", "note"], sort=False)
    reasons = alike.agg(cases=("case", "size"), dtypes=("dtype", distinct))
    reasons, left_out = worst_rows(reasons, reasons["cases"], word="most frequent")
    lines: list[tuple[Cell, ...]] = [
        (method, part, status, cases, dtypes, note)
        for (method, part, status, note), cases, dtypes in reasons.itertuples(name=None)
    ]
    names = (("method", "code"), ("pass", "text"), ("status", "text"), ("cases", "count"), ("dtype", "text"))
    return Table(
        f"Why not, in the library's words.{left_out}",
        (*(Field(name, show) for name, show in names), Field("reason", "text")),  # type: ignore[arg-type]
        tuple(lines),
        printed=True,
    )


def _refused_backward(frame: pd.DataFrame) -> pd.Series[bool]:
    return (frame["status"] == "ok") & frame["backward"].notna() & (frame["backward"] != "ok")
