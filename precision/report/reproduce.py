"""The lines of Python that make a case again, with the package's own API."""

from __future__ import annotations

import json

import pandas as pd

_SHAPE = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "d_k", "d_v")

_TEMPLATE = """\
import torch
from precision.backends.backend import backends
from precision.formats import find_format
from precision.inputs.make import make_inputs
from precision.numerics.incidence import count_incidence
from precision.numerics.metrics import measure_errors
from precision.numerics.reference import attend
from precision.problem import Problem, Shape

problem = Problem(Shape({shape}), {dtype}, {inputs}, mask={mask}, scale={scale}, seed={seed})
x = make_inputs(problem, torch.device({device})).rounded
with backends.build({method}).prepare(x) as call:
    out = call()
right = attend(x)
incidence = count_incidence(out, right)
errors = measure_errors(out, right.out, find_format(problem.dtype), ~right.masked_rows)
print(incidence, errors, sep="\\n")
"""


def lines_for(row: pd.Series) -> str:
    """A script that prints the incidence and the errors of a measured row; they are the row's own numbers."""
    texts = {name: json.dumps(row[name]) for name in ("dtype", "inputs", "mask", "device", "method")}
    shape = ", ".join(str(int(row[name])) for name in _SHAPE)
    return _TEMPLATE.format(shape=shape, scale=json.dumps(_scale(row["scale"])), seed=int(row["seed"]), **texts)


def _scale(text: str) -> str | float:
    """A row keeps a scale as text; a problem takes a rule's name or a number."""
    try:
        return float(text)
    except ValueError:
        return text
