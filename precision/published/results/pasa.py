"""PASA: inputs with a common mean overflow fp16 before the scale is applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from precision.backends.eager import Eager
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Value
from precision.experiments.plot import Plot
from precision.inputs.make import round_operands
from precision.inputs.offset import Offset
from precision.inputs.outlier import Outlier
from precision.operands import Operands
from precision.problem import Shape
from precision.published.published import Published, Target, published

_Place = Literal["after", "before"]
_MEANS, _AMPLITUDES = (0, 10, 20, 30), (0.5, 5.0, 10.0, 20.0)
_SHAPE = Shape(1, 1, 1, 128, 256, 128, 128)
_KINDS = ("uniform", "hybrid")
_PLACES: dict[_Place, str] = {"after": "S in fp16 first", "before": "scaled first"}
_LEAST, _MOST = "rows that overflow, least over the amplitudes", "rows that overflow, most over the amplitudes"


@published.register("pasa")
@dataclass(frozen=True)
class Pasa(Published):
    """With q and k around 30, every row overflows when S is fp16 before the scale; none does when scaled first."""

    source = "Cheng et al., Online Pseudo-average Shifting Attention (PASA), 2025, arXiv 2503.01873"
    setup = (
        "Textbook attention in fp16 at d = 128. Uniform inputs: on mean ± amplitude. Hybrid inputs: N(mean, 1), and "
        "N(0, amplitude²) added to one in a thousand. Means 0, 10, 20, 30; amplitudes 0.5, 5, 10, 20."
    )
    choices = (
        "Lengths: 128 queries and 256 keys. Only the incidence is held, the share of rows that are not finite: at a "
        "mean of 30 a score is near 128 · 900 = 115 200, beyond 65 504."
    )
    plot = Plot(
        "The most over four amplitudes. Scores pass 65 504, the end of fp16, between means of 20 and 30.",
        x="mean of the inputs",
        base2=False,
        shown=(_MOST,),
    )

    def measure(self, effort: Effort) -> Iterable[Value]:
        for kind in _KINDS:
            for place, name in _PLACES.items():
                for mean in _MEANS:
                    shares = [_overflowing(kind, mean, amplitude, place) for amplitude in _AMPLITUDES]
                    yield Value(_LEAST, f"{kind}, {name}", mean, 0, min(shares))
                    yield Value(_MOST, f"{kind}, {name}", mean, 0, max(shares))

    def targets(self, effort: Effort) -> Iterable[Target]:
        for kind in _KINDS:
            yield Target(_LEAST, f"{kind}, {_PLACES['after']}", 1.0, 0.0, 0.0, x=30)
            yield Target(_MOST, f"{kind}, {_PLACES['after']}", 0.0, 0.0, 0.0, x=10, origin="theory")
            yield Target(_MOST, f"{kind}, {_PLACES['before']}", 0.0, 0.0, 0.0, x=30)


def _overflowing(kind: str, mean: float, amplitude: float, place: _Place) -> float:
    if kind == "uniform":
        drawn = Offset(mean, amplitude).draw(_SHAPE, generator(0))
    else:
        drawn = Outlier(amplitude).draw(_SHAPE, generator(0))
        drawn = type(drawn)(*(mean + tensor for tensor in drawn))
    out = Eager(scale=place).attend(round_operands(Operands(*drawn), "fp16"))
    return float((~out.isfinite().all(-1)).double().mean())
