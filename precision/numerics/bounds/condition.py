"""How ill-conditioned a call of attention is: what a relative error of its inputs does to its output."""

from __future__ import annotations

import math

from torch import Tensor

from precision.numerics.bounds.matrices import Matrices


def condition_number(call: Matrices) -> float:
    """Relative change of the output for a relative change of every element of q, k and v, both small, in the 2-norm.

    A score changes by at most s_j = 2 |q|.|k_j| scale, a weight by p_j ((1 - p_j) s_j + sum over i != j of p_i s_i),
    and the output by sum |dp| |v| + sum p |v|; the norm that follows is what is given. 1 is perfect; infinite for an
    output of 0. As accupy's condition number of a sum, sum |x| / |sum x|, it has to do with no format and no kernel.
    """
    p, score = call.p, 2 * call.products
    of_others = (p * score).sum(-1, keepdim=True) - p * score
    change: Tensor = (p * ((1 - p) * score + of_others) + p) @ call.v.abs()
    norm = float(call.right.out.norm())
    return float(change.norm()) / norm if norm else math.inf
