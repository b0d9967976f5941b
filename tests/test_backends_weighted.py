"""Backends whose weights are no softmax: they average the values with weights of their own."""

from __future__ import annotations

import pytest
import torch
from backend_calls import OTHER_FUNCTIONS, PROBLEMS, operands, prepared, with_

from precision.backends.backend import Refused, backends
from precision.numerics.reference import attend
from precision.scores.weighting import weightings


@pytest.mark.parametrize("method", OTHER_FUNCTIONS)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)])
def test_a_weighting_averages_the_values_with_its_weights(method: str, heads: tuple[int, int]) -> None:
    """With v the identity the output is the weights; query heads share key heads in turn."""
    x = with_(operands(torch.float64, heads=heads), scale=0.3)
    x = with_(x, v=torch.eye(7, dtype=torch.float64).expand(2, heads[1], 7, 7))
    with prepared(method, x) as call:
        out = call()
    weighting = weightings.build(method.removeprefix("weighting/"))
    for head in range(heads[0]):
        key_head = head // (heads[0] // heads[1])
        for batch in range(2):
            alone = weighting.weights(x.q[batch, head], x.k[batch, key_head], 0.3)
            torch.testing.assert_close(out[batch, head], alone, rtol=0, atol=1e-12)


def test_the_weightings_that_are_no_softmax_are_far_from_it() -> None:
    """Else the property that excuses them from the tests above would hide a fault."""
    x = with_(operands(torch.float64), q=20 * operands(torch.float64).q)
    others = {name.removeprefix("weighting/") for name in OTHER_FUNCTIONS}
    assert others == {"bahdanau", "linear", "performer", "sink", "soft_cap"}
    for method in OTHER_FUNCTIONS:
        with prepared(method, x) as call:
            assert float((call() - attend(x).out).abs().max()) > (0 if method == "weighting/sink" else 1e-3), method


@pytest.mark.parametrize("problem", ["causal wide", "boolean mask", "additive mask"])
def test_a_weighting_refuses_a_mask(problem: str) -> None:
    for name in weightings.names():
        backend = backends.build(f"weighting/{name}")
        with pytest.raises(Refused, match="has a mask"), backend.prepare(PROBLEMS[problem](torch.float32)):
            pass
