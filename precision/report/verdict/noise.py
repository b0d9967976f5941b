"""Whether the samples of a run scatter too much to rank latencies."""

from __future__ import annotations

import pandas as pd

from precision.report.rows import dtypes_of
from precision.report.show import ratio

# Median width of the 95 % intervals over their medians: about a tenth on a quiet machine, half and more on a busy one.
_NOISE = 0.3


def timed_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The measured rows (rows.py) whose latency stands beside an error."""
    return rows[(rows["latency"] > 0) & (rows["out_rel_l2"] > 0) & rows["dtype"].isin(dtypes_of(rows))]


def noise_of(rows: pd.DataFrame) -> str | None:
    """How the latencies of a run scatter, as a clause, when that is too much; None where they can be ranked."""
    timed = timed_rows(rows)
    noise = float(((timed["latency_high"] - timed["latency_low"]) / timed["latency"]).median())
    if not noise > _NOISE:  # NaN where nothing was timed
        return None
    return f"half of the latencies have a 95 % interval wider than {ratio(noise)} their median"
