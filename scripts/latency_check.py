"""Does the latency method keep its promises on this machine? Writes a page; takes about four minutes.

    python scripts/latency_check.py reports/history/latency.md

Its figures depend on what else the machine does, so they are a report and not a test. On a machine that others use
too, put `nice -n -20 taskset -c 1` before it.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from benchmarks import cases, naive
from benchmarks.test_reference import make_square
from precision.backends.backend import Attention, backends
from precision.inputs.make import make_inputs
from precision.latency.compare import compare_latency
from precision.latency.cpu import read_cpu_use, warn_of_others, warn_of_threads
from precision.latency.health import warn_of_drift, warn_of_noise
from precision.latency.ratio import compare
from precision.latency.sample import Prepare, sample_latency, sample_rounds
from precision.numerics.reference import attend
from precision.operands import Operands
from precision.problem import Problem, Shape
from precision.sweep.environment import observe_environment
from precision.sweep.memory import measure_peak_memory

CPU = torch.device("cpu")
METHODS = ["eager", "sdpa-math", "sdpa-flash"]
COMPARISONS, ROUNDS = 40, 60
TURNS = 31  # of the two timers, next to each other so that the machine's other work meets both

PAGE = """# Latency figures that can be trusted

Measured by `python scripts/latency_check.py` with torch {torch}, {cpu}, {threads} thread(s) of {cores} cores;
niceness {niceness}, pinned to {pinned} core(s). {warnings}

## The same callable, timed twice

Median of the suite's samples and of `torch.utils.benchmark.Timer.blocked_autorange`, in {turns} turns of both in
one run; the difference is the median over the turns, with its 99 % interval.

{agreement}

Largest difference: {largest:.1%}.

## Is a difference found, and only where there is one?

`eager` in fp32 on (1, 2, 257, 64), {rounds} interleaved rounds a comparison, {comparisons} comparisons each.

| compared with itself | differences claimed |
|:--|:--|
| as it is | {claimed} of {comparisons} |
| slowed down by 10 % | {found} of {comparisons} |

The last of them: {same}; {slowed}.

## What the reference costs

fp64 attention of (1, 8, 2048, 64), {reference_rounds} interleaved rounds in one process.

{costs}

Memory that the reference adds at (1, 1, 32768, 64): {memory:.1f} MiB; all scores in fp64 would be {scores:.0f} MiB.

## Methods against each other

(1, 8, 1024, 64), with the share of the roofline that a large matrix product and a large copy measured in this run.

{methods}
"""


def prepared(method: str, x: Operands) -> Prepare:
    """The method on these operands."""
    return partial(backends.build(method).prepare, x)


def slow_down(call: Attention, share: float) -> Attention:
    """The same call, each time longer by a share of what it took."""

    def slower() -> Tensor:
        start = time.perf_counter()
        out = call()
        end = start + (1 + share) * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return out

    return slower


def check_agreement() -> pd.DataFrame:
    """One line a method and dtype: both medians, and how they differ within a turn."""
    lines = []
    for dtype in cases.DTYPES:
        for method in METHODS:
            with prepared(method, cases.make_operands("normal", dtype))() as call:
                timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
                ours, theirs = [], []
                for _ in range(TURNS):
                    ours.append(median(sample_latency(call, CPU)))
                    theirs.append(timer.blocked_autorange(min_run_time=0.07).median)
            found = compare("ours", ours, "torch's", theirs)
            ends = [100 * (ratio - 1) for ratio in (found.ratio, found.low, found.high)]
            lines.append((method, dtype, 1e3 * median(ours), 1e3 * median(theirs), *ends))
    columns = ["method", "dtype", "ours, ms", "torch's Timer, ms", "difference, %", "from", "to"]
    return pd.DataFrame(lines, columns=columns)


def check_claims(share: float, warnings: list[str]) -> tuple[int, str]:
    """How often a copy that is slower by a share was told apart from the original, and the last sentence."""
    call = backends.build("eager")

    def original() -> AbstractContextManager[Attention]:
        return call.prepare(cases.make_operands("normal", "fp32"))

    def changed() -> AbstractContextManager[Attention]:
        with original() as function:
            return nullcontext(slow_down(function, share) if share else function)

    claims = 0
    for seed in range(COMPARISONS):
        samples = sample_rounds({"copy": changed, "original": original}, CPU, rounds=ROUNDS, seed=seed)
        found = compare("copy", samples["copy"], "original", samples["original"])
        claims += found.differs
        warnings += [*warn_of_noise(samples), *warn_of_drift(samples)]
    return claims, str(found)


def check_reference(rounds: int) -> pd.DataFrame:
    """One line an implementation: its median and its ratio to the reference."""
    x = make_square(heads=8, length=2048)
    implementations: dict[str, Prepare] = {
        "streaming reference": lambda: nullcontext(lambda: attend(x).out),
        "three lines of torch": lambda: nullcontext(lambda: naive.attend_naively(x)),
        "torch SDPA FLASH": prepared("sdpa-flash", x),
    }
    samples = sample_rounds(implementations, CPU, rounds=rounds)
    ours, *others = implementations
    lines: list[tuple[object, ...]] = [(ours, median(samples[ours]), "1", "")]
    for name in others:
        ratio = compare(name, samples[name], ours, samples[ours])
        lines.append(
            (name, median(samples[name]), f"{ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]", str(ratio))
        )
    return pd.DataFrame(lines, columns=["implementation", "median, s", "time over the reference's", "in words"])


def compare_methods() -> str:
    """What the suite says of the methods, for two dtypes."""
    shape = Shape(1, 8, 8, 1024, 1024, 64, 64)
    parts = []
    for dtype in ("fp32", "bf16"):
        x = make_inputs(Problem(shape, dtype), CPU).rounded
        parts.append(f"{dtype}:\n\n```\n{compare_latency(METHODS, x, CPU, rounds=15)}\n```")
    return "\n\n".join(parts)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    torch.set_num_threads(1)
    before = read_cpu_use()
    agreement = check_agreement()
    seen: list[str] = []
    claimed, same = check_claims(0.0, seen)
    found, slowed = check_claims(0.1, seen)
    long = make_square(heads=1, length=32768)
    warned = f"{len(seen)} warnings of noise or drift in {2 * COMPARISONS} comparisons."
    text = PAGE.format(
        **observe_environment(CPU),
        niceness=os.nice(0),
        pinned=len(os.sched_getaffinity(0)),
        warnings="\n".join([warned, *warn_of_threads(), *warn_of_others(before, read_cpu_use())]),
        agreement=agreement.to_markdown(index=False, floatfmt=".3g"),
        largest=agreement["difference, %"].abs().max() / 100,
        turns=TURNS,
        rounds=ROUNDS,
        comparisons=COMPARISONS,
        claimed=claimed,
        found=found,
        same=same,
        slowed=slowed,
        reference_rounds=10,
        costs=check_reference(10).to_markdown(index=False, floatfmt=".3g"),
        memory=measure_peak_memory(lambda: attend(long).out, CPU) / 2**20,
        scores=8 * 32768**2 / 2**20,
        methods=compare_methods(),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
