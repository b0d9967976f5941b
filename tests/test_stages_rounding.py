"""A stage's rounding as text: what it reads, what it multiplies by, and what it refuses."""

import pytest
import torch
from torch import Tensor

from precision.errors import UsageError
from precision.formats import STAGE_FORMATS, find_stage_format
from precision.stages.rounding import Rounding


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("bf16", "bf16"),
        ("bf16:nearest", "bf16"),
        (" fp16:truncate", "fp16:truncate"),
        ("e4m3:x256:tensor", "e4m3:tensor:x256"),
        ("e5m2:block128:stochastic", "e5m2:stochastic:block128"),
        ("input", "input"),
        ("opmath:x0.5", "opmath:x0.5"),
    ],
)
def test_reads_and_spells(text: str, spelled: str) -> None:
    assert str(Rounding.parse(text)) == spelled
    assert Rounding.parse(spelled) == Rounding.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bf61", "did you mean 'bf16'"),
        ("", "unknown format ''"),
        ("bf16:down", "'down' is no part of a rounding"),
        ("bf16:block0", "'block0' is no part"),
        ("bf16:x0", "'x0' is no part"),
        ("bf16:x-2", "'x-2' is no part"),
    ],
)
def test_says_what_it_cannot_read(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Rounding.parse(text)


@pytest.mark.parametrize(("dtype", "opmath"), [("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")])
def test_names_that_wait_for_the_dtype(dtype: str, opmath: str) -> None:
    assert str(Rounding.parse("input:truncate").resolve(dtype)) == f"{dtype}:truncate"
    assert str(Rounding.parse("opmath").resolve(dtype)) == opmath
    assert str(Rounding.parse("e4m3:tensor").resolve(dtype)) == "e4m3:tensor"


def test_a_shared_factor_takes_the_largest_to_the_largest_of_the_format() -> None:
    """Against torch's own e4m3, and each matrix by itself."""
    x = normal(2, 3, 7, 5)
    found = Rounding.parse("e4m3:tensor").apply(x)
    largest = x.abs().amax((-1, -2), keepdim=True)
    scaled = (x * (448 / largest)).float()  # far from the ties that a second rounding would invent
    assert torch.equal(found, scaled.to(torch.float8_e4m3fn).double() / (448 / largest))
    assert torch.equal(found.abs().amax((-1, -2)), x.abs().amax((-1, -2)))


def test_blocks_of_rows_share_a_factor() -> None:
    """Rows 0-3, 4-7 and 8: as if each block were a matrix of its own."""
    x = normal(9, 5) * torch.tensor([1.0, 1e6, 1e-6]).double().repeat_interleave(4)[:9, None]
    found = Rounding.parse("e4m3:block4").apply(x)
    alone = Rounding.parse("e4m3:tensor")
    assert torch.equal(found, torch.cat([alone.apply(part) for part in (x[:4], x[4:8], x[8:])]))
    assert not torch.equal(found, alone.apply(x))


def test_a_factor_moves_the_range() -> None:
    """2^-10 is half of e4m3's smallest number and goes to 0; times 2^8 it is a number of the format."""
    x = torch.tensor([[2.0**-10, 3.0]], dtype=torch.float64)
    assert Rounding.parse("e4m3").apply(x).tolist() == [[0.0, 3.0]]
    assert Rounding.parse("e4m3:x256").apply(x).tolist() == [[2.0**-10, 448 / 256]]


def test_nothing_and_zeros_have_no_largest() -> None:
    for shape in ((0, 4), (3, 0), (3, 4)):
        x = torch.zeros(shape, dtype=torch.float64)
        assert torch.equal(Rounding.parse("e4m3:block2").apply(x), x)


@pytest.mark.parametrize(
    ("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)], ids=["e4m3", "e5m2"]
)
def test_eight_bit_ranges_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    format, info = STAGE_FORMATS[name], torch.finfo(dtype)
    assert format.torch_name == str(dtype).removeprefix("torch.")
    assert (format.largest, 2.0**format.min_exponent) == (info.max, info.smallest_normal)
    assert (format.unit_roundoff, format.smallest) == (info.eps / 2, info.smallest_normal * info.eps)


def test_tf32_has_the_range_of_float32_and_the_precision_of_float16() -> None:
    """NVIDIA, "TensorFloat-32 in the A100 GPU" (2020): 8 bits of exponent, 10 of significand."""
    tf32 = find_stage_format("tf32")
    assert tf32.unit_roundoff == 2.0**-11
    assert (tf32.min_exponent, tf32.max_exponent) == (-126, 127)


def test_e4m3_never_overflows_to_infinity() -> None:
    e4m3 = find_stage_format("e4m3")
    assert e4m3.overflow_threshold == e4m3.exp_overflow == float("inf")


def test_an_unknown_format_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"unknown format 'e4m4'; did you mean 'e4m3'"):
        find_stage_format("e4m4")
