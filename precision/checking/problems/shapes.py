"""Plain calls in shapes around block sizes, and needles that make every key count."""

from __future__ import annotations

from precision.checking.problems.needles import draw_needles
from precision.checking.problems.problem import CheckProblem, draw_normal
from precision.problem import Shape

_BLOCKS = "blocks and remainders"
# Multiples of 8 and of 4 that leave a remainder in steps of 16, 32, 64 and 128; 33 and 40 are below 64.
_WIDTHS = (2, 5, 72, 80, 96, 100, 112, 160, 192, 320, 512)


def _of_width(d_k: int, d_v: int, purpose: str = "the width of a head") -> CheckProblem:
    name = f"d{d_k}" if d_k == d_v else f"d{d_k}-{d_v}"
    return CheckProblem(name, purpose, Shape(1, 2, 2, 9, 19, d_k, d_v), draw_normal)


PROBLEMS = [
    CheckProblem("plain", "anything", Shape(2, 3, 3, 63, 65, 40, 40), draw_normal, shows_bias=True),
    CheckProblem("one-key", "the sum over one key", Shape(1, 2, 2, 33, 1, 16, 16), draw_normal),
    CheckProblem("one-query", "decoding", Shape(2, 2, 2, 1, 129, 64, 64), draw_normal),
    CheckProblem("31x33", _BLOCKS, Shape(1, 2, 2, 31, 33, 24, 24), draw_normal),
    CheckProblem("127x129", _BLOCKS, Shape(1, 1, 1, 127, 129, 64, 64), draw_normal, shows_bias=True),
    CheckProblem("113x203", _BLOCKS, Shape(1, 2, 2, 113, 203, 32, 32), draw_normal, shows_bias=True),
    CheckProblem("64x128", "whole blocks", Shape(1, 1, 1, 64, 128, 64, 64), draw_normal),
    CheckProblem("needles-97", _BLOCKS, Shape(1, 2, 2, 41, 97, 32, 32), draw_needles),
    CheckProblem("needles-300", _BLOCKS, Shape(1, 1, 1, 41, 300, 32, 32), draw_needles),
    CheckProblem("needles-1061", "more than 1024 keys", Shape(1, 1, 1, 41, 1061, 32, 32), draw_needles),
    CheckProblem("needles-4133", "more than 4096 keys", Shape(1, 1, 1, 41, 4133, 32, 32), draw_needles),
    CheckProblem(
        "needles-65551", "more than 65536 keys", Shape(1, 1, 1, 5, 65551, 32, 8), draw_needles, backward=False
    ),
    CheckProblem("1023x1024", "many rows and keys", Shape(1, 1, 1, 1023, 1024, 16, 16), draw_normal, backward=False),
    CheckProblem("2053-queries", "many query rows", Shape(1, 1, 1, 2053, 37, 24, 24), draw_normal, shows_bias=True),
    CheckProblem("65551-queries", "more than 65536 query rows", Shape(1, 1, 1, 65551, 3, 8, 8), draw_normal),
    CheckProblem("many-heads", "heads and batches", Shape(3, 41, 41, 7, 9, 16, 16), draw_normal),
    CheckProblem("1088-heads", "the size of a grid", Shape(4, 272, 272, 1, 5, 8, 8), draw_normal),
    CheckProblem("d128", "the width of a head", Shape(1, 2, 2, 17, 35, 128, 128), draw_normal),
    CheckProblem("d256", "the width of a head", Shape(1, 1, 1, 9, 19, 256, 256), draw_normal),
    CheckProblem("d33", "an odd width", Shape(1, 2, 2, 19, 23, 33, 33), draw_normal),
    CheckProblem("gqa-4-1", "which key head a query head uses", Shape(2, 4, 1, 19, 37, 32, 32), draw_normal),
    CheckProblem("gqa-6-2", "which key head a query head uses", Shape(2, 6, 2, 19, 37, 32, 32), draw_normal),
    CheckProblem("gqa-32-4", "which key head a query head uses", Shape(1, 32, 4, 7, 9, 16, 16), draw_normal),
    CheckProblem("wide-v", "d_v apart from d_k", Shape(1, 2, 2, 33, 65, 24, 40), draw_normal),
    CheckProblem("narrow-v", "d_v apart from d_k", Shape(1, 2, 2, 33, 65, 48, 24), draw_normal),
    *(_of_width(width, width) for width in _WIDTHS),
    *(_of_width(64, d_v, "d_v apart from d_k") for d_v in (72, 80, 96, 112)),
    *(_of_width(d_k, 64, "d_v apart from d_k") for d_k in (80, 112)),
]
