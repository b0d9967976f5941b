"""What rounding may do to attention and its gradients.

products      a sum, a dot product, deterministic and probabilistic
softmax       softmax and log-sum-exp, shifted or not, by row and by element; perturbed scores; the online softmax
weighted_sum  P V
roundings     what a kernel rounds
worst_case    out, dq, dk and dv of a kernel by what it rounds: the whole, worst case
sensitivity   out, dq, dk and dv of a kernel that keeps sums in a format: the whole, in standard deviations
condition     the condition number of a call, whatever its format
sample        a part of a large call, small enough for these
"""

from precision.numerics.bounds.condition import condition_number
from precision.numerics.bounds.matrices import Matrices, Sizes
from precision.numerics.bounds.products import dot_products, gamma, probability, probable_gamma
from precision.numerics.bounds.roundings import Roundings
from precision.numerics.bounds.sample import Sample
from precision.numerics.bounds.sensitivity import Sensitivity
from precision.numerics.bounds.softmax import (
    log_sum_exp_shifted,
    log_sum_exp_unshifted,
    online_softmax,
    perturbed_output,
    perturbed_weights,
    softmax_shifted,
    softmax_shifted_elementwise,
    softmax_unshifted,
)
from precision.numerics.bounds.weighted_sum import weighted_sum
from precision.numerics.bounds.worst_case import largest_errors, largest_output_error

__all__ = [
    "Matrices",
    "Roundings",
    "Sample",
    "Sensitivity",
    "Sizes",
    "condition_number",
    "dot_products",
    "gamma",
    "largest_errors",
    "largest_output_error",
    "log_sum_exp_shifted",
    "log_sum_exp_unshifted",
    "online_softmax",
    "perturbed_output",
    "perturbed_weights",
    "probability",
    "probable_gamma",
    "softmax_shifted",
    "softmax_shifted_elementwise",
    "softmax_unshifted",
    "weighted_sum",
]
