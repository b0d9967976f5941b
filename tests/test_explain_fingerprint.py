"""The fingerprint of kernels whose roundings are known: torch's own, bit for bit, and made ones."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from precision.backends.backend import backends
from precision.cli import app
from precision.errors import UsageError
from precision.explain.fingerprint import Fingerprint, explain
from precision.explain.lattice import COUNTS, STARTS, Point
from precision.inputs.make import make_inputs
from precision.numerics.rounding import round_to
from precision.problem import Problem, Shape
from precision.stages.forward import attend
from precision.stages.plan import Plan

FLASH = "exp by torch's fast cubic, running max over tiles of 512 keys"


@pytest.mark.parametrize(
    ("target", "words", "shares"),
    [
        ("sdpa-math", "fp32 throughout, rounded to {} once at the end", (0.995, 0.999)),
        (
            "sdpa-math-reduced",
            "fp32 state, scores rounded to {0}, normalised P rounded to {0}, root of the scale on q and k",
            (0.99, 0.998),
        ),
        ("sdpa-flash", "fp32 state, unnormalised P rounded to {}, " + FLASH, (0.95, 0.99)),
        (
            "eager",
            "fp32 state, scores rounded to {0}, each step of the softmax rounded to {0}, normalised P rounded to {0}",
            (0.998, 0.9995),
        ),
    ],
)
def test_torchs_kernels_are_known_by_their_roundings(target: str, words: str, shares: tuple[float, float]) -> None:
    found = explain(target)
    assert [row.dtype for row in found.nearest] == ["fp16", "bf16"]
    for row, share in zip(found.nearest, shares, strict=True):
        assert row.plan == words.format(row.dtype)
        assert row.equal >= share
        assert not any(other.equal > row.equal for other in found.rows if other.rank == "further")
    assert found.passed
    assert found.sentences[0].startswith(f"{target} in fp16 behaves like: {found.nearest[0].plan}; 9")
    assert found.sentences[0].endswith(" % of elements bit-equal")


@pytest.mark.parametrize(
    "method",
    [
        "staged[plan=eager,max=none,scale=before]",
        "staged[plan=flash,block=32,exp=poly,pv=input]",
        "staged[plan=flash,max=exact,block=0,p=input:truncate,s=opmath,scaled=input,masked=input]",
    ],
)
def test_a_plan_far_from_every_known_kernel_is_found(method: str) -> None:
    (row,) = explain(method, ["bf16"]).nearest
    assert row.equal == 1.0 and row.rel_l2 == 0.0
    assert backends.build(row.method).max_subtraction == ("max=none" not in method)
    again = explain(row.method, ["bf16"]).nearest[0]
    assert (again.equal, again.plan) == (1.0, row.plan)


KERNELS = """
import torch

def upcast(q, k, v):
    out = torch.nn.functional.softmax(q.float() @ k.float().mT / q.shape[-1] ** 0.5, -1) @ v.float()
    return out.to(q.dtype)

def linear(q, k, v):
    return v.mean(2, keepdim=True).expand(q.shape)

def long(q, k, v):
    return q @ k.mT

def broken(q, k, v):
    raise RuntimeError("out of luck")

def half(q, k, v):
    return upcast(q, k, v).float()
"""


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)
    return str(file)


def test_a_kernel_of_ones_own(kernels: str) -> None:
    row = explain(f"{kernels}:upcast", ["fp16"]).nearest[0]
    assert row.plan == "fp32 throughout, rounded to fp16 once at the end"
    assert row.equal > 0.99


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("long", r"must return a tensor \(1, 2, 96, 48\)"),
        ("half", r"in torch.float16; see what `precision check` says"),
        ("broken", "cannot be called: RuntimeError: out of luck"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_a_kernel_that_cannot_be_explained_is_a_mistake(kernels: str, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        explain(f"{kernels}:{name}", ["fp16"])


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("sdpa-flesh", "did you mean 'sdpa-flash'"),
        ("sdpa-cudnn", "sdpa-cudnn is not on this machine: "),
        ("staged[rotate=true]", "takes none of fp16: .* d_k is 48"),
    ],
)
def test_a_backend_that_cannot_be_explained_is_a_mistake(target: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        explain(target, ["fp16"])


@pytest.mark.parametrize(("dtype", "said"), [("fp32", "rounds no stage to less"), ("fp61", "did you mean")])
def test_a_dtype_that_tells_nothing_is_a_mistake(dtype: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        explain("eager", [dtype])


def test_a_dtype_that_is_refused_is_told() -> None:
    found = Fingerprint("mine", (), (("bf16", "no such number"),))
    assert found.sentences == ["mine does not take bf16: no such number"]


# The lattice


def test_every_point_is_a_plan_with_words_of_its_own() -> None:
    """A start and all its neighbours: no two plans are the same, and neither are their words."""
    for start in STARTS.values():
        points = [start, *start.neighbours()]
        assert len({point.plan for point in points}) == len({point.words("fp16") for point in points}) == len(points)


def test_words_say_no_more_than_is_known_of_tiles() -> None:
    """One tile that holds all keys has one end: what is rounded there is rounded once."""
    narrow = {"state": "narrow", "weights": "unnormalised"}
    tiles = {name: Point(**narrow, max=name).words("fp16") for name in COUNTS["max"]}
    assert {name for name, words in tiles.items() if "after each tile" in words} == set(COUNTS["max"]) - {"row", "none"}
    assert all("O rounded to fp16 once, before it" in tiles[name] for name in ("row", "none"))
    # P normalised first: rounding O is rounding the output, and no two plans may be one.
    x = make_inputs(Problem(Shape(1, 2, 2, 13, 29, 16, 8), "bf16", "normal"), torch.device("cpu")).rounded
    wide, state = (Point(weights="normalised", state=name) for name in ("wide", "narrow"))
    outs = [round_to(attend(point.plan, x).out, "bf16") for point in (wide, state)]
    assert torch.equal(*outs) and wide.is_possible and not state.is_possible


def test_choices_that_contradict_each_other_are_no_neighbours() -> None:
    assert not Point(weights="normalised", max="tiles64").is_possible
    assert all(point.max in ("row", "none") for point in Point().neighbours())
    assert {point.max for point in STARTS["flash"].neighbours()} == set(COUNTS["max"])


def test_the_plainest_point_is_wide_throughout() -> None:
    assert Point().plan.resolve("fp64") == Plan(normalise="before")


# The command


def test_the_command_answers_first_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    done = CliRunner().invoke(app, ["explain", "eager", "--dtype", "bf16", "--lines", "2", "--json", str(file)])
    assert done.exit_code == 0
    assert done.output.startswith("eager in bf16 behaves like: fp32 state, scores rounded to bf16, ")
    assert sum(line.startswith("bf16 ") for line in done.output.splitlines()) == 2
    written = json.loads(file.read_text())
    assert written["verdict"] == "pass" and len(written["rows"]) > 2
    assert set(written["rows"][0]) == {"dtype", "rank", "plan", "equal", "rel_l2", "method"}
    assert written["rows"][0]["method"] == "staged[plan=eager]"


def test_the_command_fails_where_nothing_explains(kernels: str) -> None:
    done = CliRunner().invoke(app, ["explain", f"{kernels}:linear", "--dtype", "bf16"])
    assert done.exit_code == 1
    assert done.output.startswith(f"no plan explains {kernels}:linear in bf16; the nearest is: ")
