"""A fused attention forward kernel in Triton: an online softmax over tiles of keys (Dao 2023, algorithm 1).

Its state (row maximum, row sum, accumulator) is fp32, and fp64 for fp64 inputs. What a study of the softmax
varies is decided when the kernel is compiled, so that a variant pays for nothing it does not use.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention_forward(
    q_pointer,
    k_pointer,
    v_pointer,
    mask_pointer,
    out_pointer,
    q_strides,  # of the four dimensions, in elements; so are the others
    k_strides,
    v_strides,
    mask_strides,
    out_strides,
    q_heads,
    group,  # query heads for each key head
    q_len,
    kv_len,
    d_k,
    d_v,
    MAX_SUBTRACTION: tl.constexpr,
    SCALE: tl.constexpr,  # 1 compiles the multiplication away; an argument would be rounded to fp32
    CAUSAL: tl.constexpr,
    MASK: tl.constexpr,  # "", "bool" or "additive"
    STATE: tl.constexpr,  # dtype of the scores, the row statistics and the accumulator
    DOT: tl.constexpr,  # dtype of the factors of a product
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH_K: tl.constexpr,  # d_k and d_v rounded up to a power of two
    WIDTH_V: tl.constexpr,
):
    """One program: ROWS query rows of one head of one batch element."""
    batch = (tl.program_id(1) // q_heads).to(tl.int64)
    head = (tl.program_id(1) % q_heads).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns_k = tl.arange(0, WIDTH_K)
    columns_v = tl.arange(0, WIDTH_V)
    row_is_real = rows < q_len

    q_base = q_pointer + batch * q_strides[0] + head * q_strides[1]
    k_base = k_pointer + batch * k_strides[0] + (head // group) * k_strides[1]
    v_base = v_pointer + batch * v_strides[0] + (head // group) * v_strides[1]
    q = tl.load(
        q_base + rows[:, None] * q_strides[2] + columns_k[None, :] * q_strides[3],
        mask=row_is_real[:, None] & (columns_k < d_k)[None, :],
        other=0.0,
    ).to(DOT)

    row_max = tl.full((ROWS,), float("-inf"), STATE)
    row_sum = tl.zeros((ROWS,), STATE)
    weighted = tl.zeros((ROWS, WIDTH_V), STATE)
    end = kv_len
    if CAUSAL:  # aligned to the top left: row i sees keys 0..i
        end = tl.minimum(kv_len, (tl.program_id(0) + 1) * ROWS)
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        key_is_real = keys < kv_len
        k = tl.load(
            k_base + keys[:, None] * k_strides[2] + columns_k[None, :] * k_strides[3],
            mask=key_is_real[:, None] & (columns_k < d_k)[None, :],
            other=0.0,
        ).to(DOT)
        v = tl.load(
            v_base + keys[:, None] * v_strides[2] + columns_v[None, :] * v_strides[3],
            mask=key_is_real[:, None] & (columns_v < d_v)[None, :],
            other=0.0,
        ).to(DOT)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=STATE)
        if SCALE != 1.0:
            scores = scores * SCALE
        takes_part = key_is_real[None, :]
        if CAUSAL:
            takes_part = takes_part & (keys[None, :] <= rows[:, None])
        if MASK != "":
            mask = tl.load(
                mask_pointer
                + batch * mask_strides[0]
                + head * mask_strides[1]
                + rows[:, None] * mask_strides[2]
                + keys[None, :] * mask_strides[3],
                mask=row_is_real[:, None] & key_is_real[None, :],
                other=0,
            )
            if MASK == "bool":
                takes_part = takes_part & (mask != 0)
            else:
                scores = scores + mask.to(STATE)
        scores = tl.where(takes_part, scores, float("-inf"))

        if MAX_SUBTRACTION:
            # Unlike tl.max alone this keeps a NaN.
            new_max = tl.maximum(row_max, tl.max(scores, 1), propagate_nan=tl.PropagateNan.ALL)
            shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # a row without a key so far
            rescale = tl.exp(row_max - shift)
            weights = tl.exp(scores - shift[:, None])
            row_sum = row_sum * rescale
            weighted = weighted * rescale[:, None]
            row_max = new_max
        else:
            weights = tl.exp(scores)
        row_sum += tl.sum(weights, 1)
        weighted = tl.dot(weights.to(v_pointer.dtype.element_ty).to(DOT), v, weighted, input_precision="ieee")

    if MAX_SUBTRACTION:
        # A row that sees no key is 0; so is one whose logits all overflow to -inf, as in the kernels it stands for.
        row_sum = tl.where(row_max == float("-inf"), 1.0, row_sum)
    out = weighted / row_sum[:, None]
    tl.store(
        out_pointer
        + batch * out_strides[0]
        + head * out_strides[1]
        + rows[:, None] * out_strides[2]
        + columns_v[None, :] * out_strides[3],
        out.to(out_pointer.dtype.element_ty),
        mask=row_is_real[:, None] & (columns_v < d_v)[None, :],
    )
