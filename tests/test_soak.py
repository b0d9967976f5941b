"""The soak: random calls are what their lines make, a right kernel has no finding, and a wrong one a small script."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from precision.backends.backend import backends
from precision.numerics.reference import attend
from precision.numerics.rounding import round_to
from precision.problem import Shape

SMALL = Shape(2, 4, 2, 5, 7, 6, 6)


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")


@pytest.fixture
def kernel(monkeypatch):
    """Puts a function of operands into the registry of backends, under the name `mine`."""

    def put(function):
        @dataclass(frozen=True)
        class Mine:
            max_subtraction = True

            @contextmanager
            def prepare(self, x):
                yield lambda: function(x)

        monkeypatch.setitem(backends._classes, "mine", Mine)

    return put


def right(x):
    """The reference, rounded once."""
    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
    return round_to(attend(x).out, names[x.q.dtype])


def test_lines_make_a_call_of_every_kind():
    from soak_recipe import LAYOUTS, MASKS, POISONS, Recipe

    recipes = [Recipe(SMALL, "fp16", mask=mask, layout=layout) for mask in MASKS for layout in LAYOUTS]
    recipes += [Recipe(SMALL, "fp16", poison=poison) for poison in POISONS]
    for recipe in recipes:
        x = recipe.operands()
        assert (x.q.shape, x.k.shape, x.v.shape) == ((2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 6)), recipe
        assert {x.q.dtype, x.k.dtype, x.v.dtype} == {torch.float16}
        if x.attn_mask is not None:
            assert torch.broadcast_shapes(x.attn_mask.shape, (2, 4, 5, 7)) == (2, 4, 5, 7)
        assert x.q.isfinite().all() == (not recipe.poison.endswith("q"))
        again = recipe.operands()
        assert torch.equal(again.v.nan_to_num(), x.v.nan_to_num()) and again.v.stride() == x.v.stride()


def test_numbers_name_problems():
    from soak_recipe import draw_recipe

    assert draw_recipe(7) == draw_recipe(7)
    assert len({draw_recipe(number).shape for number in range(50)}) > 40


def test_a_right_kernel_has_no_finding(kernel):
    from soak_judge import find_faults
    from soak_recipe import draw_recipe

    kernel(right)
    recipes = [replace(draw_recipe(number), shape=SMALL) for number in range(25)]
    assert [finding for recipe in recipes for finding in find_faults(recipe, "mine")] == []


def off_in_one_column(x):
    out = right(x)
    out[..., -1] *= 1.1
    return out


def spoils_its_input(x):
    out = right(x)
    x.q.zero_()
    return out


def loses_nan(x):
    return right(x).nan_to_num()


def fails_on_long_keys(x):
    if x.k.shape[2] > 3:
        raise ValueError(f"{x.k.shape[2]} keys")
    return right(x)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (off_in_one_column, "wrong (max"),
        (spoils_its_input, "wrote to its inputs"),
        (loses_nan, "NaN lost"),
        (fails_on_long_keys, "raised ValueError"),
    ],
)
def test_a_wrong_kernel_is_found_and_its_call_made_small(kernel, function, kind, monkeypatch):
    from soak_judge import find_faults, shrunk
    from soak_recipe import Recipe

    monkeypatch.setattr("precision.checking.shrink._SECONDS", 60.0)  # a busy machine must not end it early
    kernel(function)
    poison = "a NaN in k" if function is loses_nan else "none"
    recipe = Recipe(SMALL, "fp32", mask="additive", layout="cut out", poison=poison)
    finding = next(each for each in find_faults(recipe, "mine") if each.kind.startswith(kind))
    small = shrunk(finding).recipe
    assert shrunk(finding).key == finding.key
    assert (small.mask, small.layout, small.shape.batch, small.shape.q_len) == ("none", "contiguous", 1, 1)
    assert small.shape.kv_len == (4 if "raised" in kind else 1)


def test_the_script_of_a_finding_shows_it(kernel, capsys):
    from soak_recipe import Recipe

    kernel(off_in_one_column)
    recipe = replace(Recipe(SMALL, "fp32"), mask="rows without a key", layout="heads inside", scale=-0.5)
    exec(recipe.reproduction("mine", "out"), {})
    assert capsys.readouterr().out.startswith("tensor(0.")
    exec(recipe.reproduction("sdpa-math", "dq"), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["dq", "dk", "dv"]
