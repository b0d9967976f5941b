"""What can be named in a configuration, the columns of a row and others: the lists behind `precision list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from precision.errors import UsageError, nearest
from precision.formats import FORMATS
from precision.presets import PRESETS
from precision.records.columns import COLUMNS, LATENCY_COLUMNS
from precision.registry import Registry, describe
from precision.sweep.config import config_names, parse_config, read_config_text


def catalogue(kind: str) -> pd.DataFrame:
    """One line a thing of the kind; raises UsageError on an unknown kind."""
    if kind not in _KINDS:
        raise UsageError(f"unknown kind {kind!r}; {nearest(kind, _KINDS)}")
    return _KINDS[kind]()


def _kinds() -> pd.DataFrame:
    lines = [(name, make.__doc__) for name, make in _KINDS.items() if name != "kinds"]
    return pd.DataFrame(lines, columns=["kind", "meaning"])


def _registered(registry: Registry[Any]) -> pd.DataFrame:
    lines = [(entry.name, entry.options, entry.meaning) for entry in describe(registry)]
    return pd.DataFrame(lines, columns=[registry.kind, "options and defaults", "meaning"])


def _backends() -> pd.DataFrame:
    """ways to compute attention: `methods` in a configuration"""
    from precision.backends.backend import backends

    return _registered(backends)


def _distributions() -> pd.DataFrame:
    """where q, k and v come from: `inputs`"""
    from precision.inputs.distribution import distributions

    return _registered(distributions)


def _masks() -> pd.DataFrame:
    """which keys a query sees: `mask`"""
    from precision.scores.mask import masks

    return _registered(masks)


def _scales() -> pd.DataFrame:
    """what multiplies q.k: `scale`, or a number"""
    from precision.scores.scale import scale_rules

    return _registered(scale_rules)


def _zoo() -> pd.DataFrame:
    """failures that people meet: `inputs = "zoo/NAME[...]"`"""
    from precision.zoo.case import zoo

    return _registered(zoo)


def _recipes() -> pd.DataFrame:
    """models that `precision capture` can run"""
    from precision.capture.recipes import recipes

    return _registered(recipes)


def _stages() -> pd.DataFrame:
    """what the method `staged` can round: its options, each FORMAT[:MODE][:tensor|:blockROWS][:xFACTOR]"""
    from precision.stages.plan import STAGES

    return pd.DataFrame(list(STAGES.items()), columns=["stage", "meaning"])


def _problems() -> pd.DataFrame:
    """what `precision check` calls a kernel with, by the names that its output gives"""
    from precision.checking.problems import PROBLEMS

    lines = [(problem.name, str(problem.shape), problem.purpose) for problem in PROBLEMS]
    return pd.DataFrame(lines, columns=["problem", "shape", "what it tries"])


def _published() -> pd.DataFrame:
    """results of others that `precision reproduce` makes again"""
    from precision.published.published import published

    return _registered(published)


def _dtypes() -> pd.DataFrame:
    """number formats: `dtype`"""
    lines = [(f.name, f"{f.unit_roundoff:.3g}", f"{f.largest:.6g}", f"{f.smallest:.3g}") for f in FORMATS.values()]
    return pd.DataFrame(lines, columns=["dtype", "unit roundoff", "largest", "smallest"])


def _presets() -> pd.DataFrame:
    """attention shapes of real models: `preset`"""
    lines = [(name, h.q_heads, h.kv_heads, h.d_k, h.d_v) for name, h in PRESETS.items()]
    return pd.DataFrame(lines, columns=["preset", "q_heads", "kv_heads", "d_k", "d_v"])


def _configs() -> pd.DataFrame:
    """configurations that ship: the argument of `precision run`"""
    lines = [(name, parse_config(read_config_text(name)).title) for name in config_names()]
    return pd.DataFrame(lines, columns=["config", "title"])


def _columns() -> pd.DataFrame:
    """the columns of a row"""
    lines = [(c.name, c.unit, c.better, c.meaning) for c in (*COLUMNS, *LATENCY_COLUMNS)]
    return pd.DataFrame(lines, columns=["column", "unit", "better", "meaning"])


_KINDS: dict[str, Callable[[], pd.DataFrame]] = {
    "kinds": _kinds,
    "backends": _backends,
    "distributions": _distributions,
    "masks": _masks,
    "scales": _scales,
    "stages": _stages,
    "dtypes": _dtypes,
    "presets": _presets,
    "configs": _configs,
    "columns": _columns,
    "recipes": _recipes,
    "zoo": _zoo,
    "problems": _problems,
    "published": _published,
}
