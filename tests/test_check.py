"""`precision check` as people use it: targets, verdicts, limits, reproduction, page, JSON, the pytest helper."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from precision.checking.api import check
from precision.checking.page import write_page
from precision.checking.problems import PROBLEMS
from precision.checking.render import render
from precision.checking.result import CheckResult, Outcome, Verdict
from precision.errors import UsageError
from precision.kernel import Kernel
from precision.testing import assert_accurate
from tests.kernels.parts import attend
from tests.kernels.right import eager_same_dtype, forward_only

FILE = """
import math


def attention(q, k, v, is_causal=False):
    scores = q.float() @ k.float().mT / {divisor}
    if is_causal:
        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v.float()).to(q.dtype)
"""


class _Own(torch.autograd.Function):
    pass


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[CheckResult, str]:
    """A file whose kernel divides by d_k, checked in full, and its target."""
    file = tmp_path_factory.mktemp("kernels") / "mine.py"
    file.write_text(FILE.format(divisor="q.shape[-1]"))
    target = f"{file}:attention"
    return check(target, dtypes=("bf16",), device="cpu"), target


def test_a_wrong_kernel_in_a_file(failing: tuple[CheckResult, str]) -> None:
    result, target = failing
    assert (result.verdict, result.passed, result.kernel) == (Verdict.FAIL, False, target)
    assert result.reasons[0] == "matches scale 1/d_k"
    assert any(row.outcome is Outcome.FAIL and row.problem == "plain" for row in result.rows)


def test_the_reproduction_is_small_and_shows_the_error(failing: tuple[CheckResult, str]) -> None:
    result, _ = failing
    assert len(result.reproduction.splitlines()) <= 10
    ran = subprocess.run([sys.executable, "-c", result.reproduction], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    found = re.match(r"out is wrong \(.*\): largest error (\S+) \(allowed (\S+)\)", ran.stdout)
    assert found and float(found[1]) > 2 * float(found[2]) > 0
    shape = re.search(r"\((\d+(?:, \d+){6})\)", result.reproduction)
    assert shape and math.prod(map(int, shape[1].split(", "))) <= 64  # one key more, and the scale counts


def test_json_has_a_verdict_and_rows(failing: tuple[CheckResult, str]) -> None:
    result, _ = failing
    read = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert (read["verdict"], read["level"]) == ("fail", "fail")
    assert len(read["rows"]) == len(result.frame) == len(result.rows) > 50
    assert set(read["rows"][0]) == set(result.frame.columns)


def test_the_page_holds_everything(failing: tuple[CheckResult, str], tmp_path: Path) -> None:
    result, target = failing
    page = write_page(result, tmp_path / "new" / "folder").read_text()
    assert page.startswith(f"# fail: `{target}`")
    assert "matches scale 1/d_k" in page and result.reproduction in page
    assert page.count("\n| bf16") == len(result.rows)
    assert len((tmp_path / "new" / "folder" / "rows.csv").read_text().splitlines()) == len(result.rows) + 1
    with pytest.raises(UsageError, match="name another folder"):
        write_page(result, tmp_path / "new" / "folder" / "rows.csv")


def test_the_terminal_says_the_same(failing: tuple[CheckResult, str]) -> None:
    """However narrow it is: no line is broken, so that what is printed can be run."""
    result, target = failing
    console = Console(width=30, file=io.StringIO())
    render(result, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith(f"FAIL  {target}\n")
    assert "\n  - matches scale 1/d_k\n" in text
    assert text.endswith(result.reproduction)


def test_keywords_that_are_not_taken_are_limits(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(divisor="math.sqrt(q.shape[-1])"))
    result = check(f"{file}:attention", dtypes=("fp32",), device="cpu", level="quick")
    assert result.verdict is Verdict.PASS_WITH_LIMITS and result.passed
    for refused in ("grouped heads", "a boolean mask", "an additive mask", "a scale"):
        assert any(limit.startswith(f"{refused} refused: it takes no") for limit in result.limits), refused
    assert not any("is_causal refused" in limit for limit in result.limits)
    strict = check(f"{file}:attention", dtypes=("fp32",), device="cpu", level="quick", strict=True)
    assert strict.verdict is Verdict.PASS_WITH_LIMITS and not strict.passed
    assert strict.to_json()["verdict"] == "fail"


def test_no_backward_is_a_limit_and_can_be_left_out() -> None:
    said = [
        check(forward_only, dtypes=("bf16",), device="cpu", level="quick", backward=b).limits for b in (True, False)
    ]
    assert any("no backward" in limit for limit in said[0])
    assert not any("no backward" in limit for limit in said[1])


def test_eager_in_fp16_has_the_limits_of_the_format() -> None:
    result = check(eager_same_dtype, dtypes=("fp16",), device="cpu", level="quick")
    for where in ("exceeds 65504 before the scale", "a row is fully masked", "weights are too small for the format"):
        assert any(where in limit for limit in result.limits), where


def test_flash_loses_a_nan_and_math_does_not() -> None:
    def math_backend(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **call)

    default = torch.nn.functional.scaled_dot_product_attention
    lost = "a NaN is lost where a query is NaN"
    for kernel, loses in ((default, True), (math_backend, False)):
        result = check(kernel, dtypes=("fp16",), device="cpu", level="quick", backward=False)
        assert any(limit.startswith(lost) for limit in result.limits) is loses


def test_fp64_is_checked_when_asked_for() -> None:
    def narrow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q.float(), k.float(), v.float()).to(q.dtype)

    assert check(attend, dtypes=("fp64",), device="cpu", level="quick").verdict is not Verdict.FAIL
    asked = check(narrow, dtypes=("fp64",), device="cpu", level="quick")
    assert asked.verdict is Verdict.FAIL
    assert asked.reasons[0] == "out looks rounded to fp32: no element has more than 24 bits"


def test_an_accident_on_ordinary_inputs_is_named() -> None:
    def picky(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v) + torch.zeros(q.shape[2] // 8 * 8, 1)

    result = check(picky, dtypes=("fp32",), device="cpu", level="quick")
    assert result.verdict is Verdict.FAIL
    assert any("RuntimeError: The size of tensor a (63)" in reason for reason in result.reasons)


def test_differences_between_calls_within_rounding_are_a_limit() -> None:
    signs = iter([1.0, -1.0] * 10_000)

    def restless(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attend(q, k, v)
        out.view(-1)[0] *= 1 + next(signs) * 2.0**-23
        return out

    result = check(restless, dtypes=("fp32",), device="cpu", level="quick")
    assert result.verdict is Verdict.PASS_WITH_LIMITS, result.reasons
    assert any(limit.startswith("two calls with the same inputs differ") for limit in result.limits)


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        check(forward_only, dtypes=("fp32",), device="cpu", level="quick")
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_the_helper_for_tests() -> None:
    assert_accurate(eager_same_dtype, dtypes=("fp32",), device="cpu")
    with pytest.raises(AssertionError, match="matches scale 1 instead"):
        assert_accurate(lambda q, k, v: attend(q, k, v, scale=1.0), dtypes=("fp32",), device="cpu")
    with pytest.raises(AssertionError, match="pass with limits\n- "):
        assert_accurate(forward_only, dtypes=("fp32",), device="cpu", strict=True)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_file.py:attention", "there is no file"),
        ("no_such_module_anywhere:attention", "cannot be imported"),
        ("tests.kernels.parts:attention", "has no function 'attention'"),
        ("tests.kernels.parts", "file.py:function"),
        (":attention", "file.py:function"),
        ("tests:", "file.py:function"),
        ("tests/kernels:attention", "is a folder; name a file in it: tests/kernels/FILE.py:attention"),
        ("tests.kernels.parts:math", "'math' in 'tests.kernels.parts' is no function; known: "),
        (3, "is not a function"),
        (_Own, "_Own is a class; pass _Own.apply"),
        (lambda q, k: q, "must take q, k and v"),
        (lambda q, k, v, block_table: q, "'block_table', which a check cannot give"),
    ],
)
def test_a_target_that_cannot_be_checked(target: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check(target, device="cpu")


@pytest.mark.parametrize(
    ("options", "why"), [({"dtypes": ("fp8",)}, "unknown dtype"), ({"dtypes": ()}, "at least one")]
)
def test_dtypes_that_cannot_be_checked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check(attend, device="cpu", **options)


def test_only_what_is_needed_is_passed() -> None:
    def own_default(q: Tensor, k: Tensor, v: Tensor, scale: float = 0.5) -> Tensor:
        return q

    def required(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Tensor:
        seen.append((is_causal, scale))
        return attend(q, k, v, is_causal=is_causal, scale=scale)

    seen: list[tuple[bool, float]] = []
    assert Kernel.of(own_default).keywords == {"scale"}
    check(required, dtypes=("fp32",), device="cpu", level="quick", backward=False)
    assert seen[0] == (False, 40**-0.5)
    assert any(causal for causal, _ in seen)


def test_what_a_kernel_writes_to_its_inputs_is_put_back() -> None:
    def vandal(q: Tensor, k: Tensor, v: Tensor, **call: Any) -> Tensor:
        out = attend(q, k, v, **call)
        with torch.no_grad():
            for tensor in (q, k, v, call.get("attn_mask")):
                if tensor is not None and 0 not in tensor.stride():
                    tensor.zero_()
        return out

    first = check(vandal, dtypes=("bf16",), device="cpu")
    assert first.verdict is Verdict.FAIL
    assert all("it writes to its inputs" in reason for reason in first.reasons)
    assert check(attend, dtypes=("bf16",), device="cpu", level="quick").verdict is not Verdict.FAIL


def test_only_functions_of_the_file_itself_are_suggested(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from math import sqrt\nfrom textwrap import dedent\n\n\ndef attention(q, k, v):\n    pass\n")
    with pytest.raises(UsageError, match=r"has no function 'nothing'; known: attention$"):
        check(f"{file}:nothing", device="cpu")


def test_a_method_is_named_with_its_class(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\n\nclass Own:\n    @staticmethod\n    def apply(q, k, v):\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    )
    result = check(f"{file}:Own.apply", dtypes=("fp32",), device="cpu", level="quick", budget=1e-3)
    assert result.verdict is Verdict.PASS_WITH_LIMITS, result.reasons


@pytest.mark.parametrize("end", [SystemExit(0), GeneratorExit()])
def test_a_kernel_that_ends_the_script_fails(end: BaseException) -> None:
    def ending(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise end

    result = check(ending, dtypes=("fp32",), device="cpu", budget=1e-3, backward=False)
    assert result.verdict is Verdict.FAIL
    assert f"plain: it raises {type(end).__name__}: " in result.reasons[0]


def test_ctrl_c_ends_a_check() -> None:
    def interrupted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(interrupted, dtypes=("fp32",), device="cpu")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda q: None, "it returns NoneType, not a tensor"),
        (lambda q: (q, q), "it returns tuple, not a tensor"),
        (lambda q: q.numpy(), "it returns ndarray, not a tensor"),
        (lambda q: q.double(), "it returns torch.float64 for inputs in torch.float32"),
        (lambda q: q.mT, "it returns the shape (2, 3, 40, 63) instead of (2, 3, 63, 40)"),
        (lambda q: q.to("meta"), "it returns a tensor on meta for inputs on cpu"),
    ],
)
def test_what_is_no_output_is_said_once(returned: Any, said: str) -> None:
    def broken(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, **call: Any) -> Any:
        return returned(q)

    result = check(broken, dtypes=("fp32",), device="cpu", backward=False)
    assert result.verdict is Verdict.FAIL
    assert result.reasons[-1].endswith(f"; plain: {said}")
    assert not [limit for limit in result.limits if "it returns" in limit]


def test_a_budget_leaves_out_problems_and_says_so() -> None:
    result = check(attend, dtypes=("fp32",), device="cpu", budget=1e-3)
    assert {row.problem for row in result.rows} == {"plain"}
    assert result.verdict is Verdict.PASS_WITH_LIMITS and result.passed
    total = len([problem for problem in PROBLEMS if "fp32" in problem.dtypes])
    assert result.limits == (
        f"{total - 1} of {total} problems were not reached in 0.001 s; a larger budget reaches more",
    )


def test_a_slow_kernel_gets_one_input_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def slow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.append(q)
        return attend(q, k, v)

    for seconds, calls in ((1.0, 2), (0.0, 1)):
        monkeypatch.setattr("precision.checking.trial._SLOW", seconds)
        seen.clear()
        check(slow, dtypes=("fp32",), device="cpu", budget=1e-3, backward=False)
        assert len(seen) == calls
