"""Section: the worst cases, each with the lines that make it again."""

from __future__ import annotations

import pandas as pd

from precision.report.blocks import Code, Field, Section, Table
from precision.report.reproduce import lines_for
from precision.report.rows import dtypes_of, worst_row
from precision.report.show import count, listed, number, plural
from precision.report.source import Source


def make_section(source: Source) -> Section | None:
    """The largest relative error of each dtype, and the worst case of each cause of rows that are not finite."""
    rows = source.rows
    if rows.empty:
        return None
    blocks: tuple[Code | Table, ...] = (*_largest_errors(rows), *_not_finite(rows), *_first_failures(rows))
    sentence = (
        "Relative error ranks the cases: the largest error in ulp is always found where the right value is almost 0, "
        "and says little. Each case can be made again with the lines below it."
    )
    return Section("worst", "The worst cases", (sentence,), blocks)


def cause_of(row: pd.Series) -> str:
    """Why rows of this case are not finite, from the hazards of its exact scores."""
    if row["scores_over_before_scale"] > 0 and row["backend"] == "eager":
        return "q·k overflows before the scale"
    if row["scores_over_after_scale"] > 0:
        return "the scaled logits overflow"
    if not row["max_subtraction"] and row["rows_sum_inf_unshifted"] > 0:
        return "an exponential overflows, since no maximum is subtracted"
    return "none that the exact scores show"


def _largest_errors(rows: pd.DataFrame) -> list[Code]:
    finite = rows[(rows["rows_nonfinite"] == 0) & (rows["out_rel_l2"] > 0)]
    finite = finite[finite["dtype"].isin(dtypes_of(finite))]
    worst = [worst_row(of_dtype, "out_rel_l2") for _, of_dtype in finite.groupby("dtype", sort=False)]
    return [
        Code(
            f"Largest relative error in {row['dtype']}, every row finite: {_name(row)}. Relative error "
            f"{number(row['out_rel_l2'])}, largest absolute error {number(row['out_max_abs'])}.",
            lines_for(row),
        )
        for row in worst
    ]


def _not_finite(rows: pd.DataFrame) -> list[Code]:
    broken = rows[rows["rows_nonfinite"] > 0]
    if broken.empty:
        return []
    blocks = []
    for cause, group in broken.assign(cause=broken.apply(cause_of, axis=1)).groupby("cause", sort=False):
        row = worst_row(group, "nonfinite")
        blocks.append(
            Code(
                f"Rows not finite in {plural(len(group), 'case')} ({listed(dtypes_of(group))}), cause: {cause}. "
                f"The worst: {_name(row)}, {count(row['rows_nonfinite'])} of {count(row['rows'])} rows. "
                f"First failure, inferred: {row['first_failure'] or 'none'}.",
                lines_for(row),
            )
        )
    return blocks


def _first_failures(rows: pd.DataFrame) -> list[Table]:
    failed = rows[rows["first_failure"] != ""]
    if failed.empty:
        return []
    columns = ["method", "source_label", "d_k", "dtype", "scale", "rows_nonfinite", "first_failure"]
    fields = (
        Field("method", "code"), Field("inputs", "text"), Field("d_k", "count"), Field("dtype", "text"),
        Field("scale", "text"), Field("rows not finite", "count"), Field("first failure", "code"),
    )  # fmt: skip
    caption = (
        "Where each case failed first: stage, exact value and what became of it, the limit, and (batch, head, query, "
        "key) of the first such value; inferred from the exact scores, for a kernel that keeps each stage in the dtype."
    )
    return [Table(caption, fields, tuple(failed[columns].itertuples(index=False, name=None)), collapsed=True)]


def _name(row: pd.Series) -> str:
    return f"{row['method']} on {row['inputs']}, d_k {row['d_k']:.0f}, mask {row['mask']}, scale {row['scale']}"
