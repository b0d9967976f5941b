"""`precision check` survives any kernel: what takes its process down, or never returns, is a verdict with a reason."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from precision import cli
from precision.checking import worker
from precision.checking.case import Case
from precision.checking.isolated import check_isolated
from precision.checking.result import CheckResult, Verdict
from precision.errors import UsageError
from tests.kernels.parts import attend

MISBEHAVING = Path(__file__).parent / "kernels" / "misbehaving.py"
KERNELS = """
import os
from torch.nn.functional import scaled_dot_product_attention as attention

calls = 0

def leaves(q, k, v):
    os._exit(0)

def interrupts(q, k, v):
    raise KeyboardInterrupt

def later(q, k, v):
    global calls
    calls += 1
    if calls > 4:
        os.abort()
    return attention(q, k, v) * 2

def counts(q, k, v):
    global calls
    calls += 1
    return attention(q, k, v) * (2 if calls % 2 == 0 else 1)

def writes(q, k, v):
    out = attention(q, k, v)
    q.mul_(2)
    return out
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels that must not run in this process."""
    file = tmp_path_factory.mktemp("kernels") / "mine.py"
    file.write_text(KERNELS)
    return file


def check(target: str, budget: float = 1e-3, timeout: float = 20.0, backward: bool = False) -> CheckResult:
    """The plain problem alone, in fp32."""
    return check_isolated(target, dtypes=("fp32",), device="cpu", backward=backward, timeout=timeout, budget=budget)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("segfaults", "plain: its process was killed by SIGSEGV"),
        ("aborts", "plain: its process was killed by SIGABRT: assertion failed: tile < 64"),
        ("exits", "plain: its process ended with exit status 3"),
        ("ends_the_script", "plain: it raises SystemExit: done"),
    ],
)
def test_a_kernel_that_takes_its_process_down_fails_with_the_reason(name: str, reason: str) -> None:
    result = check(f"{MISBEHAVING}:{name}")
    assert result.verdict is Verdict.FAIL
    assert any(reason in said for said in result.reasons), result.reasons
    assert f"{MISBEHAVING}:{name}" in result.reproduction
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("target", [f"{MISBEHAVING}:hangs_in_c", "{file}:leaves"])
def test_a_kernel_that_never_returns_fails_after_the_timeout(file: Path, target: str) -> None:
    """A process that ends itself as if all were well is one that does not answer, either."""
    begin = time.perf_counter()
    result = check(target.format(file=file), timeout=1.0)
    assert time.perf_counter() - begin < 20
    assert result.reasons == ("fp32: wrong on plain; plain: it did not end within 1 s; a larger timeout gives it more",)
    assert any("problems were not reached: the check ended with its process" in limit for limit in result.limits)


def test_a_ctrl_c_of_the_kernels_own_is_a_failure(file: Path) -> None:
    result = check(f"{file}:interrupts")
    assert "plain: its process ended with exit status 130" in result.reasons[0]


def test_what_was_judged_before_a_crash_is_kept(file: Path) -> None:
    result = check(f"{file}:later", budget=30.0)
    plain, *_, last = result.rows
    assert plain.problem == "plain" and plain.max_abs is not None and plain.max_abs > 0.1
    assert last.note == "its process was killed by SIGABRT"
    assert result.reasons[0].startswith("fp32: wrong on plain, one-key")


def test_a_crash_in_the_backward_pass_alone_fails() -> None:
    result = check(f"{MISBEHAVING}:crashes_in_backward", backward=True)
    assert "plain: its process was killed by SIGSEGV" in result.reasons[0]
    assert "torch.autograd.grad(" in result.reproduction


def test_what_a_kernel_prints_is_not_heard(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not the verdict in the first line, nor anything else."""
    target, file = f"{MISBEHAVING}:prints", tmp_path / "v.json"
    options = ["--dtype", "fp32", "--no-backward", "--budget", "0.001", "--device", "cpu", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["precision", "check", target, *options])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capfd.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert out.startswith(f"PASS WITH LIMITS  {target}\n") and "from" not in out
    assert json.loads(file.read_text())["verdict"] == "pass"


def test_the_command_line_ends_with_1_and_writes_everything(tmp_path: Path) -> None:
    options = ["--dtype", "fp32", "--device", "cpu", "--json", "v.json", "--out", "page"]
    command = [sys.executable, "-m", "precision", "check", f"{MISBEHAVING}:aborts", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"FAIL  {MISBEHAVING}:aborts\n")
    assert json.loads((tmp_path / "v.json").read_text())["verdict"] == "fail"
    assert "killed by SIGABRT" in (tmp_path / "page" / "check.md").read_text()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_file.py:attention", "there is no file"),
        (f"{MISBEHAVING}:nothing", "has no function 'nothing'"),
    ],
)
def test_a_target_that_cannot_be_checked(target: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check(target)


def test_a_file_that_ends_the_process_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos.abort()\n")
    with pytest.raises(UsageError, match="cannot be imported: its process was killed by SIGABRT"):
        check(f"{tmp_path / 'mine.py'}:attention")


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["timeout", "budget"])
def test_seconds_that_make_no_sense(name: str, seconds: float) -> None:
    with pytest.raises(UsageError, match=f"{name} is .* above 0"):
        check("mine.py:attention", **{name: seconds})


def test_a_reproduction_shows_that_inputs_are_written_to(file: Path) -> None:
    result = check(f"{file}:writes")
    assert result.reasons[0].endswith("plain: it writes to its inputs")
    assert "the inputs have changed" in run(result.reproduction)


def test_a_fault_that_depends_on_earlier_calls_is_reproduced_with_them(file: Path) -> None:
    """The first call of a process is right, and every second one wrong."""
    result = check(f"{file}:counts")
    assert result.verdict is Verdict.FAIL
    assert "for each in (other, case) * 10" in result.reproduction
    said = run(result.reproduction).splitlines()
    assert len(result.reproduction.splitlines()) <= 10
    assert [line.startswith("out is wrong") for line in said] == [False, True] * 10


def run(script: str) -> str:
    """What a script prints in a new process."""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_case_says_what_is_off_and_what_is_allowed() -> None:
    """An output that is one unit in the last place nearer to zero is wrong on average, by that unit."""
    shape = (2, 3, 3, 63, 65, 40, 40)
    case = Case("plain", "bf16", shape)
    out = attend(case.q, case.k, case.v)
    assert case.judge(out).startswith("out is right: largest error ")
    said = re.match(r"out is wrong \((?:.*, )?bias\): .*, mean error (\S+) ulp", case.judge(out.nextafter(0 * out)))
    assert said and abs(float(said[1]) + 1) < 0.05
    assert case.judge(out[..., :8]) == "wrong: it returns the shape (2, 3, 63, 8) instead of (2, 3, 63, 40)"
    case.q.zero_()
    assert case.judge(out).splitlines()[0] == "the inputs have changed: it writes to them, which is wrong"
    assert case.run(attend).startswith("out is right")  # they are put back
    assert [line.split()[0] for line in case.run(attend, backward=True).splitlines()] == ["out", "dq", "dk", "dv"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [("print('out is wrong (max)')", True), ("print('out is right')", False), ("raise SystemExit", True)],
)
def test_whether_a_script_shows_something(script: str, expected: bool) -> None:
    assert worker.shows(script) is expected
