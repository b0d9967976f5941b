"""The measured rows of a run as the sections read them: plain columns, a few derived ones, and short labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from precision.errors import UsageError
from precision.records.columns import COLUMNS, LATENCY_COLUMNS
from precision.spec import Spec

# A problem without its dtype and its scale.
SETTING = ["inputs", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "d_k", "d_v", "mask", "seed"]
_ALWAYS = ["case", "sweep", "problem", "method", "backend", "dtype", "scale", *SETTING]
# What tells settings apart when inputs and d_k do not, under the name that a label gives it.
_TELLING = {
    "d_v": "d_v", "q_len": "n", "kv_len": "keys", "q_heads": "heads", "kv_heads": "kv heads", "batch": "batch",
    "mask": "mask", "seed": "seed",
}  # fmt: skip
_MOST_WIDTHS = 16
_DTYPES = ["fp64", "fp32", "fp16", "bf16"]


def require_sound(frame: pd.DataFrame) -> None:
    """Raise UsageError when a row lacks what tells its case, or a hole its reason: a run never wrote it so."""
    holes = frame["status"] != "ok"
    lacking = [name for name in _ALWAYS if frame[name].isna().any()]
    lacking += ["note"] if frame.loc[holes, "note"].isna().any() else []
    lacking += ["rows"] if frame.loc[~holes, "rows"].isna().any() else []
    if lacking:
        raise UsageError(f"the store holds a row without {lacking[0]}; it is damaged, or another program wrote to it")


def measured_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with status ok, once a case, with NaN where nothing was measured, and derived columns.

    is_captured: whether the inputs come from a capture file; nonfinite: share of the output rows that are not
    finite; lost: share of the weights that round to 0; source_label: the inputs in a word or two.
    """
    ok = frame[frame["status"] == "ok"]
    # The same case in two sweeps: its numbers are the same, and the one with a latency says more.
    ok = ok.sort_values("latency_count", ascending=False, kind="stable").drop_duplicates("case").sort_index()
    columns = {column.name: _plain(ok[column.name], column.type) for column in (*COLUMNS, *LATENCY_COLUMNS)}
    rows = pd.DataFrame(columns)
    specs = [Spec.parse(inputs) for inputs in rows["inputs"]]
    return rows.assign(
        is_captured=[spec.name == "captured" for spec in specs],
        source_label=[_label_inputs(spec) for spec in specs],
        nonfinite=rows["rows_nonfinite"] / rows["rows"],
        lost=rows["weights_zero"] / rows["pairs"],
    )


def _plain(values: pd.Series[Any], type_: type) -> pd.Series[Any]:
    """Without pandas' NA, which neither numpy nor matplotlib knows."""
    if type_ is str:
        return values.fillna("").astype(object)
    return values.astype(bool) if type_ is bool else values.astype("float64")


def _label_inputs(spec: Spec) -> str:
    if spec.name != "captured":
        return str(spec)
    options = dict(spec.options)
    return f"{options.get('file', 'minilm')} {options['call']}"


def label_settings(rows: pd.DataFrame) -> pd.Series[str]:
    """The shortest text that tells the settings of these rows apart: inputs and d_k, then whatever else differs."""
    pairs = zip(rows["source_label"], rows["d_k"], strict=True)
    label = _texts(rows, [f"{source}, d {d_k:.0f}" for source, d_k in pairs])
    for column, name in _TELLING.items():
        differs = rows[column].groupby(label).transform("nunique") > 1
        values = [value if isinstance(value, str) else f"{value:.0f}" for value in rows[column]]
        label = label.where(~differs, label + _texts(rows, [f", {name} {value}" for value in values]))
    return label


def _texts(rows: pd.DataFrame, texts: list[str]) -> pd.Series[str]:
    """One text a row, also when there is none."""
    return pd.Series(texts, rows.index, dtype=object)


def groups_by(rows: pd.DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Text keys and their rows, in the order in which the rows name them."""
    for keys, group in rows.groupby(list(columns), sort=False):
        yield tuple(str(key) for key in keys), group


def worst_row(rows: pd.DataFrame, column: str) -> pd.Series[Any]:
    """The row with the largest value of a column, the first of several; a missing value counts as the smallest."""
    return rows.iloc[int(rows[column].fillna(-math.inf).to_numpy().argmax())]


def in_order(found: pd.Series[str], order: list[str]) -> list[str]:
    """The distinct values in a given order; those it does not name come last, as they were found."""
    values = list(dict.fromkeys(found))
    return sorted(values, key=lambda value: order.index(value) if value in order else len(order))


def dtypes_of(rows: pd.DataFrame) -> list[str]:
    """The dtypes, fp64 left out where there is another: it is there to check the mathematics."""
    dtypes = in_order(rows["dtype"], _DTYPES)
    return [dtype for dtype in dtypes if dtype != "fp64"] or dtypes


def width_family(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with drawn inputs in which d_k varies while all else stays; of several such sets the one that has the
    most d_k, of which no more are taken than an axis can name. Empty when no set has two.
    """
    drawn = rows[~rows["is_captured"] & rows["scale"].isin(["sqrt_dk", "none"]) & (rows["d_v"] == rows["d_k"])]
    same = [column for column in SETTING if column not in ("d_k", "d_v")]
    widths = drawn.groupby(same, sort=False)["d_k"].transform("nunique")
    if drawn.empty or widths.max() < 2:
        return drawn.iloc[:0]
    first = drawn[same].iloc[int(widths.to_numpy().argmax())]
    family = drawn[(drawn[same] == first).all(axis=1)]
    return family[family["d_k"].isin(_spread(sorted(family["d_k"].unique()), _MOST_WIDTHS))]


def _spread(values: list[float], most: int) -> list[float]:
    """At most so many of some values, from the first to the last."""
    if len(values) <= most:
        return values
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]
