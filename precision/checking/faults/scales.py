"""Faults of the scale: another power or dimension, applied twice, or an explicit one ignored."""

from __future__ import annotations

import math
from collections.abc import Iterator

from precision.checking.faults.fault import Evidence, Prediction, hypothesis, with_scale


@hypothesis
def wrong_scale(evidence: Evidence) -> Iterator[Prediction]:
    """The output is right for a scale that was not asked for."""
    x = evidence.x
    d_k, d_v, heads = x.q.shape[-1], x.v.shape[-1], x.q.shape[1]
    scales = {
        "matches scale 1 instead": 1.0,
        "matches scale 1/d_k": 1 / d_k,
        "matches scale 1/sqrt(heads d_k)": 1 / math.sqrt(heads * d_k),
        "matches scale 1/log(d_k)": 1 / math.log(d_k) if d_k > 1 else 0.0,
        "matches scale sqrt(d_k)": math.sqrt(d_k),
        "matches scale d_k^(-1/4)": d_k**-0.25,
        "matches the scale applied twice": x.scale_value**2,
    }
    if d_v != d_k:
        scales["matches scale 1/sqrt(d_v)"] = 1 / math.sqrt(d_v)
    if x.scale is not None:
        scales["matches the default scale: the one given is ignored"] = 1 / math.sqrt(d_k)
        scales["matches the default scale times the one given"] = x.scale_value / math.sqrt(d_k)
    for sentence, scale in scales.items():
        if not math.isclose(scale, x.scale_value, rel_tol=1e-6):
            yield sentence, evidence.under(with_scale(x, scale))
