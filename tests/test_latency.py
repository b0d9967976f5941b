"""Latency: fair sampling, honest comparison, warnings and rooflines. No test here depends on the machine's speed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor

from precision.errors import UsageError
from precision.latency import clock, cpu, roofline
from precision.latency.compare import compare_latency
from precision.latency.cpu import CpuUse, read_cpu_use, warn_of_others, warn_of_threads
from precision.latency.gpu import GpuState, read_gpu_state, warn_of_clocks
from precision.latency.health import warn_of_drift, warn_of_noise, warn_of_subnormals
from precision.latency.ratio import Comparison, compare
from precision.latency.roofline import Roofline, Work, count_work
from precision.latency.sample import sample_rounds
from precision.operands import Operands

CPU = torch.device("cpu")


def draw_operands(*, q_len: int = 5, kv_len: int = 7, is_causal: bool = False) -> Operands:
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(2, 4, q_len, 8, generator=generator) + 1
    k = torch.rand(2, 2, kv_len, 8, generator=generator) + 1
    v = torch.rand(2, 2, kv_len, 3, generator=generator) + 1
    return Operands(q, k, v, is_causal=is_causal)


def draw_samples(seed: int, ratio: float, noise: float = 0.05, rounds: int = 40) -> tuple[list[float], list[float]]:
    """Two methods on one machine: its speed wanders, and each block is lengthened by work of others."""
    generator = numpy.random.default_rng(seed)
    speed = numpy.exp(numpy.cumsum(generator.normal(0, 0.02, rounds)))
    a, b = (speed * (1 + generator.exponential(noise, rounds)) for _ in range(2))
    return list(1e-3 * ratio * a), list(1e-3 * b)


# Comparison


def test_a_known_ratio_is_found_and_said() -> None:
    base = [1.0, 2.0, 1.5, 1.2, 3.0, 1.1]
    found = compare("a", [0.92 * x for x in base], "b", base)
    assert found.ratio == pytest.approx(0.92)
    assert (found.low, found.high) == pytest.approx((0.92, 0.92))
    assert str(found) == "a is faster than b by 8 % [8, 8]"
    assert str(compare("a", [1.1 * x for x in base], "b", base)) == "a is slower than b by 10 % [10, 10]"


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (Comparison("a", "b", 0.92, 0.89, 0.95), "a is faster than b by 8 % [5, 11]"),
        (Comparison("a", "b", 1.25, 1.2, 1.4), "a is slower than b by 25 % [20, 40]"),
        (Comparison("a", "b", 1.01, 0.98, 1.03), "a and b: no difference seen at 3 %"),
        (Comparison("a", "b", 0.99, 0.95, 1.02), "a and b: no difference seen at 5 %"),
    ],
)
def test_the_sentence_gives_the_difference_and_its_interval(comparison: Comparison, sentence: str) -> None:
    assert str(comparison) == sentence


def test_like_methods_are_rarely_told_apart_and_a_slowdown_of_a_tenth_nearly_always() -> None:
    claimed = sum(compare("a", a, "b", b).differs for a, b in (draw_samples(seed, 1.0) for seed in range(40)))
    found = sum(compare("a", a, "b", b).differs for a, b in (draw_samples(seed, 1.1) for seed in range(40)))
    assert claimed <= 2
    assert found >= 36


def test_a_drift_of_the_machine_cancels() -> None:
    drift = numpy.linspace(1, 3, 40)
    found = compare("a", list(1.05 * drift), "b", list(drift))
    assert (found.low, found.high) == pytest.approx((1.05, 1.05))


@pytest.mark.parametrize(("a", "b"), [([1.0, 2.0], [1.0]), ([1.0], [1.0]), ([], [])])
def test_samples_that_do_not_pair_up_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        compare("a", a, "b", b)


# Sampling


def test_every_round_times_each_method_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    opened: list[str] = []
    monkeypatch.setattr("precision.latency.sample.warm_up", lambda call, device: None)
    monkeypatch.setattr("precision.latency.sample.time_block", lambda call, device: float(call()))

    def prepare(name: str, value: float) -> object:
        @contextmanager
        def context() -> Iterator[object]:
            assert not opened, "two contexts are open at once"
            opened.append(name)
            yield lambda: timed.append(name) or torch.tensor(value)
            opened.remove(name)

        return context

    methods = {"a": prepare("a", 1.0), "b": prepare("b", 2.0), "c": prepare("c", 3.0)}
    samples = sample_rounds(methods, CPU, rounds=20, seed=1)  # type: ignore[arg-type]
    orders = [tuple(timed[i : i + 3]) for i in range(0, 60, 3)]
    assert samples == {"a": [1.0] * 20, "b": [2.0] * 20, "c": [3.0] * 20}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 3
    timed.clear()
    sample_rounds(methods, CPU, rounds=20, seed=1)  # type: ignore[arg-type]
    assert [tuple(timed[i : i + 3]) for i in range(0, 60, 3)] == orders


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [
        ([0.1] * 9, 4),  # the first is the fastest so far, the next three are no faster
        ([0.4, 0.2, 0.1, 0.1, 0.099, 0.11, 0.01], 6),
        ([0.6, 0.55, 0.5, 0.1], 2),  # a second is spent
        ([30.0, 1.0], 1),
    ],
)
def test_warm_up_ends_in_the_steady_state(monkeypatch: pytest.MonkeyPatch, seconds: list[float], calls: int) -> None:
    left = list(seconds)
    monkeypatch.setattr(clock, "time_first", lambda call, device: (None, left.pop(0)))
    clock.warm_up(lambda: torch.zeros(1), CPU)
    assert len(seconds) - len(left) == calls


def test_a_block_is_as_long_as_its_calls() -> None:
    pause = 0.002

    def call() -> Tensor:
        time.sleep(pause)
        return torch.zeros(1)

    assert clock.time_block(call, CPU) >= pause  # time.sleep never returns early


# Warnings


def test_noise_is_seen_by_the_middle_half_of_the_samples() -> None:
    calm = [1.0, 1.01, 0.99, 1.02, 1.0, 5.0, 1.0, 0.98]  # one burst is what medians are for
    noisy = [1.0, 1.2, 0.9, 1.3, 1.0, 1.25, 0.8, 1.1]
    assert warn_of_noise({"calm": calm}) == []
    (warning,) = warn_of_noise({"calm": calm, "noisy": noisy})
    assert warning.startswith("noisy: ")
    assert "taskset" in warning


def test_drift_is_a_trend_and_not_mere_noise() -> None:
    rising = list(numpy.linspace(1.0, 1.3, 30))
    (warning,) = warn_of_drift({"rising": rising})
    assert "+20%" in warning  # the medians of the outer thirds: (1 + 0.3 x 24.5/29) / (1 + 0.3 x 4.5/29) = 1.198
    shuffled = list(numpy.random.default_rng(0).permutation(rising))
    assert warn_of_drift({"flat": [1.0] * 30, "noise": shuffled, "short": [1.0, 2.0]}) == []


def test_subnormals_are_named_where_they_cost() -> None:
    x = draw_operands()
    assert warn_of_subnormals(x) == []
    x.k[0, 0, :, :] = 1e-39  # below fp32's smallest normal number, 1.18e-38: a quarter of k
    (warning,) = warn_of_subnormals(x)
    assert warning.startswith("25.0% of k is subnormal")
    half = Operands(*(torch.full((1, 1, 2, 2), 1e-6, dtype=torch.float16) for _ in range(3)))
    assert warn_of_subnormals(half) == []  # subnormal in fp16, normal in fp32, where the arithmetic is


def test_threads_are_held_against_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert warn_of_threads() == []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    (warning,) = warn_of_threads()
    assert "OMP_NUM_THREADS=4" in warning


def test_the_work_of_others_is_what_the_processors_did_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    before = CpuUse(wall=10.0, busy=100.0, own=5.0)
    quiet = CpuUse(wall=20.0, busy=140.0, own=25.0)  # in 10 s 20 s were ours and 20 s of others: two cores each
    assert warn_of_others(before, quiet) == []
    assert warn_of_others(None, quiet) == warn_of_others(before, None) == []
    (warning,) = warn_of_others(before, CpuUse(wall=20.0, busy=140.0, own=20.0))
    assert warning.startswith("other programs kept 2.5 of 4 cores busy while torch ran 2 threads")


def test_busy_time_is_that_of_proc_stat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu, "_STAT", tmp_path / "stat")
    assert read_cpu_use() is None
    (tmp_path / "stat").write_text("cpu  100 20 30 7777 8888 4 5 6 99 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr("os.sysconf", {"SC_CLK_TCK": 10}.__getitem__)
    use = read_cpu_use()
    assert use is not None
    assert use.busy == 16.5  # 100 + 20 + 30 + 4 + 5 + 6 ticks; guest time, the 99, is in the first of them


# Roofline


@pytest.mark.parametrize(("q_len", "kv_len"), [(5, 7), (7, 5), (4, 4), (1, 9)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_work_is_counted_pair_by_pair(q_len: int, kv_len: int, is_causal: bool) -> None:
    x = draw_operands(q_len=q_len, kv_len=kv_len, is_causal=is_causal)
    pairs = sum(1 for i in range(q_len) for j in range(kv_len) if j <= i or not is_causal)
    work = count_work(x)
    assert work.operations == 2 * 4 * pairs * (2 * 8 + 2 * 3)  # a multiplication and an addition each
    assert work.bytes == 4 * (2 * 4 * q_len * 8 + 2 * 2 * kv_len * (8 + 3) + 2 * 4 * q_len * 3)


def test_the_share_is_that_of_the_tighter_roof() -> None:
    machine = Roofline(operations_per_second=100.0, bytes_per_second=10.0)
    assert machine.share(Work(operations=50, bytes=1), seconds=1.0) == 0.5
    assert machine.share(Work(operations=50, bytes=8), seconds=1.0) == pytest.approx(0.8)


def test_the_roofline_is_the_rate_of_a_product_and_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_COPY_BYTES", {"cpu": 1000})
    monkeypatch.setattr(roofline, "_LARGEST_PRODUCT", {"cpu": 256})
    monkeypatch.setattr(roofline, "time_block", lambda call, device: 0.5 if call().dim() == 2 else 0.25)
    found = roofline.measure_roofline(torch.float32, CPU)
    assert found == Roofline(2 * 256**3 / 0.5, 2 * 1000 / 0.25)


# GPU


def test_the_state_of_a_gpu_is_asked_for_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_SM="sm",
        NVML_CLOCK_MEM="memory",
        NVML_TEMPERATURE_GPU="gpu",
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-1234": "handle"}.__getitem__,
        nvmlDeviceGetClockInfo=lambda handle, clock: {"sm": 1980, "memory": 3201}[clock],
        nvmlDeviceGetTemperature=lambda handle, sensor: 41,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    assert read_gpu_state(CPU) is None
    assert read_gpu_state(torch.device("cuda")) == GpuState(1980, 3201, 41)


def test_a_clock_that_falls_is_a_warning() -> None:
    fast, slow = GpuState(1980, 3201, 41), GpuState(1700, 3201, 85)
    assert warn_of_clocks(None, None) == []
    assert warn_of_clocks(fast, fast) == []
    (warning,) = warn_of_clocks(fast, slow)
    assert "1980 to 1700 MHz" in warning


# Methods against each other


def test_methods_are_compared_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_COPY_BYTES", {"cpu": 1000})
    monkeypatch.setattr(roofline, "_LARGEST_PRODUCT", {"cpu": 256})
    found = compare_latency(["sdpa-math", "eager", "sdpa-flash"], draw_square(), CPU, rounds=3)
    assert [(one.name, one.baseline) for one in found.comparisons] == [
        ("eager", "sdpa-math"),
        ("sdpa-flash", "sdpa-math"),
    ]
    assert {len(samples) for samples in found.samples.values()} == {3}
    middle = sorted(found.samples["eager"])[1]
    assert found.teraflops("eager") == pytest.approx(2 * 2 * 16 * 16 * 16 / middle / 1e12)
    assert "eager: " in str(found)


def draw_square() -> Operands:
    return Operands(*torch.rand(3, 1, 2, 16, 8, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("methods", [[], ["eager"], ["eager", "eager"]])
def test_one_method_is_no_comparison(methods: list[str]) -> None:
    with pytest.raises(UsageError, match="two or more"):
        compare_latency(methods, draw_square(), CPU)
