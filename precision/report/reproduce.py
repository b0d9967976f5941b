"""The lines of Python that make a case again, with the package's own API."""

from __future__ import annotations

import json
import math

import pandas as pd

_SHAPE = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "d_k", "d_v")

_TEMPLATE = """\
import torch
from precision.backends.backend import backends
from precision.backends.weighted import reference_of
from precision.formats import find_format
from precision.inputs.make import make_inputs
from precision.numerics.incidence import count_incidence
from precision.numerics.metrics import measure_errors
from precision.problem import Problem, Shape

problem = Problem(Shape({shape}), {dtype}, {inputs}, mask={mask}, scale={scale}, seed={seed})
x = make_inputs(problem, torch.device({device})).rounded
backend = backends.build({method})
with backend.prepare(x) as call:
    out = call()
right = reference_of(backend, x)
incidence = count_incidence(out, right)
errors = measure_errors(out, right.out, find_format(problem.dtype), ~right.masked_rows)
print(incidence, errors, sep="\\n")
"""


def lines_for(row: pd.Series) -> str:
    """A script that prints the incidence and the errors of a measured row; they are the row's own numbers."""
    texts = {name: _quoted(row[name]) for name in ("dtype", "inputs", "mask", "device", "method")}
    shape = ", ".join(str(int(row[name])) for name in _SHAPE)
    return _TEMPLATE.format(shape=shape, scale=_scale(row["scale"]), seed=int(row["seed"]), **texts)


def _quoted(text: str) -> str:
    """Python's literal of a text; JSON's, but for characters beyond 16 bits, which JSON writes as two."""
    return json.dumps(text, ensure_ascii=False)


def _scale(text: str) -> str:
    """A row keeps a scale as text; a problem takes a rule's name or a number. NaN and infinity have no literal."""
    try:
        number = float(text)
    except ValueError:
        return _quoted(text)
    return repr(number) if math.isfinite(number) else f'float("{number}")'
