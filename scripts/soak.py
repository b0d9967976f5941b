"""Random problems through every CPU backend: what goes wrong, each as the smallest call that shows it.

    python scripts/soak.py MINUTES [--first NUMBER] [--out FILE]

Problems are numbered and drawn from their number, so that a soak goes on where another one ended. A backend that ends
or blocks its process is a finding, too. Findings are told apart by backend, output or gradients, what is wrong, and
which hazard the exact scores show; of each the first is reduced to a script that runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from soak_judge import Finding, find_faults, shrunk, truth_of
from soak_recipe import Recipe, draw_recipe

from precision.torch_state import watch_torch_state

FAST = (
    "eager",
    "eager[max_subtraction=false]",
    "eager[scale=before]",
    "sdpa",
    "sdpa-math",
    "sdpa-flash",
    "sdpa-math-reduced",
    "onnxruntime",
)
# They trace or compile each problem anew, so that they are asked once in so many problems.
SLOW = {"flex[compiled=false]": 10, "jax": 20, "compiled": 200, "flex": 400}
_HANG_SECONDS = 120.0
# Causes that cases of the zoo show, too.
_KNOWN = {
    "scores overflow after the scale": "scores-overflow",
    "scores overflow before the scale": "scale-order",
    "weights that matter round to 0": "weights-underflow",
    "a row without a key": "masked-row",
    "an input is not finite": "nan-lost and padding-nan",
    "a scale of 0 or below": "causal-scale",
}


def main() -> None:
    """Soak for as long as was asked for, then write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--out", type=Path, help="file for the findings, in Markdown")
    options = parser.parse_args()
    findings, last, calls = soak(options.first, time.time() + 60 * options.minutes)
    text = _page(findings, last - options.first, calls)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


def soak(number: int, end: float) -> tuple[list[Finding], int, int]:
    """The findings up to a time, the number of the next problem, and how many calls were judged."""
    context = multiprocessing.get_context("spawn")
    findings: dict[tuple[str, ...], Finding] = {}
    calls = 0
    while time.time() < end:
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(sender, number, end, set(findings)))
        worker.start()
        sender.close()
        running: tuple[Recipe, str] | None = None
        kind = "crashed"
        while True:
            if not receiver.poll(_HANG_SECONDS):
                kind = "hangs"
                worker.kill()
                break
            try:
                message = receiver.recv()
            except EOFError:
                break
            if isinstance(message, Finding):
                findings.setdefault(message.key, message)
            else:
                running, number = message, message[0].seed + 1
                calls += 1
        worker.join()
        if worker.exitcode and running is not None:
            finding = Finding(running[1], "out", kind, f"exit status {worker.exitcode}", running[0])
            findings.setdefault(finding.key, finding)
    return list(findings.values()), number, calls


def _work(sender: Connection, number: int, end: float, known: set[tuple[str, ...]]) -> None:
    """One problem after the other in a process of its own; says what it is about to run, then what it found."""
    torch.set_num_threads(1)
    while time.time() < end:
        recipe = draw_recipe(number)
        _, cause = truth_of(recipe)
        for backend in (*FAST, *(name for name, each in SLOW.items() if number % each == each - 1)):
            sender.send((recipe, backend))
            with watch_torch_state() as changed:
                found = list(find_faults(recipe, backend))
                found += [Finding(backend, "out", f"changes torch's {what}", cause, recipe) for what in changed()]
            for finding in found:
                if finding.key not in known:
                    known.add(finding.key)
                    sender.send(shrunk(finding))
        number += 1


def _page(findings: list[Finding], problems: int, calls: int) -> str:
    parts = [f"# {len(findings)} findings in {calls:,} calls of {problems:,} problems\n"]
    for finding in sorted(findings, key=lambda finding: finding.key):
        what = f"{finding.backend}, {finding.tensor}: {finding.kind}; {finding.cause}"
        script = finding.recipe.reproduction(finding.backend, finding.tensor)
        known = f" Compare the zoo's {_KNOWN[finding.cause]}." if finding.cause in _KNOWN else ""
        said = f"In {finding.recipe.dtype}. {finding.said}{known}".strip()
        parts.append(f"## {what}\n\n{said}\n\n```python\n{script}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
