"""Kernels that do to their process what a kernel must not, and some that only look as if they did."""

import ctypes
import os
import sys
import threading
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as attention


def segfaults(q, k, v):
    ctypes.string_at(0)


def aborts(q, k, v):
    os.write(2, b"first words\nassertion failed: tile < 64\n")
    os.abort()


def exits(q, k, v):
    os._exit(3)


def ends_the_script(q, k, v):
    sys.exit("done")


def exhausts_memory(q, k, v):
    held = []
    while True:
        held.append(torch.ones(2**25))


def hangs(q, k, v):
    while True:
        time.sleep(60)


def hangs_in_c(q, k, v):
    ctypes.PyDLL(None).pause()  # holds the interpreter's lock


def raises(q, k, v):
    raise ZeroDivisionError("division by zero")


def prints(q, k, v):
    print("from Python", flush=True)
    os.write(1, b"from C\n")
    os.write(2, b"from C\n")
    return attention(q, k, v)


def returns_wrong_shape(q, k, v):
    return attention(q, k, v).mT


def returns_wrong_dtype(q, k, v):
    return attention(q, k, v).double()


def returns_wrong_device(q, k, v):
    return torch.empty_like(v, device="meta")


def returns_nothing(q, k, v):
    attention(q, k, v)


def returns_a_view_of_its_input(q, k, v):
    return v[:]


def writes_to_its_inputs(q, k, v):
    out = attention(q, k, v)
    q.zero_()
    v.untyped_storage().fill_(0)
    return out


def changes_default_dtype(q, k, v):
    torch.set_default_dtype(torch.float64)
    return attention(q, k, v)


def changes_gradient_mode(q, k, v):
    torch.set_grad_enabled(True)
    return attention(q, k, v)


def changes_seed(q, k, v):
    torch.manual_seed(0)
    return attention(q, k, v)


def changes_threads(q, k, v):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return attention(q, k, v)


def changes_matmul_precision(q, k, v):
    torch.set_float32_matmul_precision("medium")
    return attention(q, k, v)


def changes_denormals(q, k, v):
    torch.set_flush_denormal(True)
    return attention(q, k, v)


def leaves_a_dying_process(q, k, v):
    threading.Timer(0.05, lambda: os._exit(4)).start()
    return attention(q, k, v)


class _CrashingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        return attention(q, k, v)

    @staticmethod
    def backward(ctx, do):
        ctypes.string_at(0)


def crashes_in_backward(q, k, v):
    return _CrashingBackward.apply(q, k, v)


_calls = 0


def crashes_when_sampled(q, k, v):
    global _calls
    _calls += 1
    if _calls > 2:
        ctypes.string_at(0)
    return attention(q, k, v)
