"""Counting what is not a number, on outputs made by hand."""

import math
from dataclasses import asdict

import torch
from torch import Tensor

from precision.numerics.incidence import Incidence, count_incidence
from precision.numerics.reference import attend
from precision.operands import Operands

NAN, INF = math.nan, math.inf
CLEAN = dict.fromkeys(Incidence.__dataclass_fields__, 0)


def call(rows: int = 4, mask: Tensor | None = None) -> Operands:
    q, k = torch.zeros(1, 1, rows, 2), torch.zeros(1, 1, 3, 2)
    return Operands(q, k, torch.ones(1, 1, 3, 2), mask)


def counted(out: list[list[float]], x: Operands) -> dict[str, int]:
    return asdict(count_incidence(torch.tensor([[out]]), attend(x)))


def test_right_output() -> None:
    assert counted([[1, 1]] * 4, call()) == {**CLEAN, "rows": 4}


def test_every_kind_of_element() -> None:
    out = [[NAN, 1], [INF, -INF], [NAN, INF], [1, 1]]
    assert counted(out, call()) == {
        **CLEAN,
        "elements_nan": 2,
        "elements_posinf": 2,
        "elements_neginf": 1,
        "rows": 4,
        "rows_nan": 2,
        "rows_inf": 2,
        "rows_nonfinite": 3,
    }


def test_masked_rows_are_counted_apart() -> None:
    mask = torch.tensor([[True, False, True], [False] * 3, [False] * 3, [False] * 3])
    out = [[1, 1], [NAN, NAN], [0, 0], [0, 0.5]]
    assert counted(out, call(mask=mask)) == {**CLEAN, "rows": 1, "rows_masked": 3, "rows_masked_wrong": 2}


def test_rows_of_the_lowest_finite_number_are_not_masked() -> None:
    mask = torch.full((4, 3), torch.finfo(torch.float32).min)
    x = call(mask=mask)
    assert not attend(x).masked_rows.any()
    assert counted([[NAN, NAN]] * 4, x)["rows_nan"] == 4


def test_nan_that_got_lost() -> None:
    """Rows 0 and 1 must be NaN; one came out finite."""
    x = call()
    x.q[0, 0, :2, 0] = NAN
    result = counted([[1, 1], [NAN, 1], [1, 1], [1, 1]], x)
    assert result["rows_nan_lost"] == 1
    assert result["rows_nan"] == 1


def test_a_nan_that_became_infinite_is_not_lost() -> None:
    x = call()
    x.q[0, 0, 0, 0] = NAN
    assert counted([[INF, 1], [1, 1], [1, 1], [1, 1]], x)["rows_nan_lost"] == 0


def test_without_keys_every_row_is_masked() -> None:
    x = Operands(torch.zeros(1, 2, 3, 2), torch.zeros(1, 2, 0, 2), torch.zeros(1, 2, 0, 2))
    result = asdict(count_incidence(torch.zeros(1, 2, 3, 2), attend(x)))
    assert result == {**CLEAN, "rows_masked": 6}


def test_nothing_to_count() -> None:
    x = call(rows=0)
    assert asdict(count_incidence(torch.zeros(1, 1, 0, 2), attend(x))) == CLEAN
