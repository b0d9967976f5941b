"""Faults of the scale: another power or dimension, applied twice, or an explicit one ignored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from precision.checking.faults.fault import Evidence, Prediction, hypothesis

_PADDINGS = (8, 16, 32, 64, 128, 256)  # multiples to which kernels pad the width of a head


@hypothesis(everywhere=True, conditional=True)
def wrong_scale(evidence: Evidence) -> Iterator[Prediction]:
    """The output is right for a scale that was not asked for; of the backward pass only the one given can be lost."""
    x = evidence.x
    if evidence.tensor != "out":
        if x.scale is not None:
            yield "the default scale is taken: the one given is ignored", evidence.under(replace(x, scale=None))
        return
    d_k, d_v, heads = x.q.shape[-1], x.v.shape[-1], x.q.shape[1]
    scales = {
        "matches scale 1 instead": 1.0,
        "matches scale 1/d_k": 1 / d_k,
        "matches scale 1/sqrt(heads d_k)": 1 / math.sqrt(heads * d_k),
        "matches scale 1/log(d_k)": 1 / math.log(d_k) if d_k > 1 else 0.0,
        "matches scale sqrt(d_k)": math.sqrt(d_k),
        "matches scale d_k^(-1/4)": d_k**-0.25,
        "matches the scale applied twice": x.scale_value**2,
        "matches exp2 where exp is meant: log2(e) is missing": x.scale_value * math.log(2),
        "matches log2(e) applied twice": x.scale_value / math.log(2),
    }
    for block in _PADDINGS:
        width = -(-d_k // block) * block
        if width != d_k and x.scale is None:
            scales.setdefault(f"matches scale 1/sqrt({width}), of a width padded from {d_k}", 1 / math.sqrt(width))
    if d_v != d_k:
        scales["matches scale 1/sqrt(d_v)"] = 1 / math.sqrt(d_v)
    if x.scale is not None:
        ignored = "the one given is ignored" if x.scale else "scale=0 is taken for none"
        scales[f"matches the default scale: {ignored}"] = 1 / math.sqrt(d_k)
        scales["matches the default scale times the one given"] = x.scale_value / math.sqrt(d_k)
    given = "" if x.scale is None else ", not the one given"
    for sentence, scale in scales.items():
        if not math.isclose(scale, x.scale_value, rel_tol=1e-6):
            yield sentence + ("" if "the one given" in sentence else given), evidence.under(replace(x, scale=scale))
