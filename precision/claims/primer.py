"""What a reader has to know who knows only what a softmax is."""

from __future__ import annotations

from precision.formats import FORMATS
from precision.report.blocks import Field, Section, Table

_INTUITION = Section(
    "intuition",
    "What the scale is for",
    (
        "Attention compares a query q with every key k_j. The score of a key is the dot product s_j = q·k_j, a sum of "
        "d_k products. The softmax turns the scores of a row into weights p_j = exp(s_j) / Σ exp(s_i), and the output "
        "is the average of the values with these weights.",
        "A softmax looks at differences of scores only. A difference of 1 makes one weight 2.7 times the other; a "
        "difference of 11 makes it 60 000 times. So the size of the scores decides how hard the choice is: small "
        "scores average over all keys, large ones pick a single key.",
        "A sum of more terms is larger. Without a scale, a wider head has larger scores, and picks harder, for no "
        "reason but its width. Dividing by √d_k takes the width out.",
    ),
    (),
)

_VARIANCE = Section(
    "derivation",
    "Why the variance is d_k",
    (
        "Let the components of q and k be independent, with mean 0 and variance 1. One product q_i k_i has mean "
        "E[q_i] E[k_i] = 0 and variance E[q_i²] E[k_i²] = 1.",
        "The d_k products are independent of each other, so their variances add up: Var(q·k) = d_k. The standard "
        "deviation, the typical size of a score, is √d_k. Divided by √d_k the variance is d_k / d_k = 1.",
        "Each assumption is needed. If q and k are correlated by ρ, the mean is ρ d_k and the variance (1 + ρ²) d_k. "
        "If their components have mean m, the variance is (1 + 2 m²) d_k. Trained models need not meet any of this.",
    ),
    (),
)

_JACOBIAN = Section(
    "jacobian-of-softmax",
    "What a hard choice does to learning",
    (
        "Learning goes backwards through the softmax. Its derivative is ∂p_i/∂s_j = p_i (δ_ij − p_j), as a matrix "
        "J = diag(p) − p pᵀ. With the gradient g of the loss in the weights, that of the scores is "
        "∂L/∂s_j = p_j (g_j − Σ_i p_i g_i).",
        "Every entry has the factor p_j. Where one weight is almost 1, the others are almost 0, and so are their "
        "gradients: a key that lost is not told how it could win. For the key that won, g_j is almost equal to the "
        "average, and its entry is almost 0 too. That is saturation.",
        "Yet this is not the whole gradient. Row by row, the gradient of the query is ∂L/∂q = scale · Σ_j (∂L/∂s_j) "
        "k_j. Without the scale its factor is 1 and not 1/√d_k, and the keys have norm √d_k. In the rows where two "
        "keys still compete, it is large. So a mean over rows can grow while most entries vanish: look at the typical "
        "row, at the tail, and at the off-peak entries apart.",
    ),
    (),
)

_NOT_D = Section(
    "not-by-d",
    "Why not divide by d_k",
    (
        "Dividing by d_k gives scores of variance 1/d_k. At d_k = 64 a score is typically 1/8: all weights are nearly "
        "equal, the output is nearly the plain average, and a query has to grow far before it can choose.",
        "It is right when q and k are not independent. For aligned q and k the score is near ρ d_k, a mean and not a "
        "spread, and only the divisor d_k keeps that from growing with the width. That is why muP uses it.",
    ),
    (),
)

_FORMATS = Section(
    "formats",
    "What each number format adds",
    (
        "In exact arithmetic a weight of 1e-20 is small. In fp16 it is 0: what is below half of the smallest number is "
        "rounded away, and its gradient is exactly 0. Subtracting the maximum of a row changes no weight and keeps "
        "every exponential at 1 or below: it removes overflow, and does nothing against underflow.",
        "The two columns on the right are about exp(x): beyond the first it is infinite, below the second it is 0.",
    ),
    (
        Table(
            "The formats.",
            (
                Field("dtype", "code"),
                Field("relative rounding error"),
                Field("largest number"),
                Field("smallest number"),
                Field("exp(x) infinite from"),
                Field("exp(x) zero below"),
            ),
            tuple(
                (f.name, f.unit_roundoff, f.largest, f.smallest, f.exp_overflow, f.exp_underflow)
                for f in FORMATS.values()
            ),
        ),
    ),
)

PRIMER = (_INTUITION, _VARIANCE, _JACOBIAN, _NOT_D, _FORMATS)
