"""A demonstration: two faults are put into a copy of this repository's history, and found at their commits.

    python scripts/history_demo.py reports/history

Needs a repository without uncommitted changes, asv, and some ten minutes; the first of them install torch into asv's
environment. Ends with status 1 when a fault is missed or a clean commit is blamed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from precision.history.asv_results import read_asv
from precision.history.follow import History, follow
from precision.history.plot import HOW_TO_READ, draw_history

ROOT = Path(__file__).parent.parent
EAGER = Path("precision") / "backends" / "eager.py"
MACHINE = "demonstration"

# One method that the faults are in and one that they are not in.
BENCHMARKS = [
    r"latency\.Forward\.time_forward\('(eager|sdpa-math)', 'fp32', 'normal'\)",
    r"error\.Forward\.track_out_rms\('(eager|sdpa-math)', 'fp32', 'sqrt_dk', 'normal'\)",
    r"incidence\.Forward\.track_nonfinite\('(eager|sdpa-math)', 'fp32', 'sqrt_dk', 'normal'\)",
]
OPTIONS = ["--machine", MACHINE, "--interleave-rounds", "--attribute", "rounds=4"]
OPTIONS += [word for pattern in BENCHMARKS for word in ("--bench", pattern)]
FACTOR = 1.15  # for `asv continuous`; the slowdown is 1.3
LATENCY_BUDGET = 1.1  # times the latency of the first commit
ERROR_LIMIT = 1e-6  # rounding in fp32 stays below 16 u = 9.5e-7 here; one rounding to bf16 alone is 2^-9 = 2e-3


@dataclass(frozen=True)
class Step:
    """A commit of the demonstration: what it does to eager.py, and which benchmark it must break, if any."""

    subject: str
    edit: Callable[[str], str]
    breaks: str = ""


def add_remark(text: str) -> str:
    """A change that changes nothing."""
    return text + "\n# Checked.\n"


def slow_down(text: str) -> str:
    """Every call of the method works on until 30 % more than its own processor time has passed."""
    return text + (
        "\n\nimport time\n\n_attend = Eager.attend\n\n\n"
        "def _attend_slowly(self, x):\n"
        "    start = time.process_time()\n"
        "    out = _attend(self, x)\n"
        "    end = start + 1.3 * (time.process_time() - start)\n"
        "    while time.process_time() < end:\n"
        "        pass\n"
        "    return out\n\n\n"
        "Eager.attend = _attend_slowly\n"
    )


def round_weights(text: str) -> str:
    """In fp32, and in fp32 alone, the weights pass through bf16."""
    right = "weights = scores.exp()\n"
    wrong = "weights = scores.exp().bfloat16().float() if scores.dtype == torch.float32 else scores.exp()\n"
    if text.count(right) != 1:
        raise SystemExit(f"{EAGER} no longer has the line {right!r} that this demonstration changes")
    return text.replace(right, wrong)


STEPS = [
    Step("A remark", add_remark),
    Step("A slowdown of 30 %", slow_down, "latency"),
    Step("Another remark", add_remark),
    Step("Weights rounded to bf16 in fp32", round_weights, "error"),
    Step("A last remark", add_remark),
]


class Copy:
    """A clone of the repository with the steps as commits on top."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(ROOT, "git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder))
        self.commits = [self._head()]  # the parent of the first step, then one a step
        for number, step in enumerate(STEPS):
            path = folder / EAGER
            path.write_text(step.edit(path.read_text(encoding="utf-8")), encoding="utf-8")
            date = f"2099-01-{number + 1:02}T00:00:00+0000"  # after every commit that the repository has
            author = ("-c", "user.name=demonstration", "-c", "user.email=demonstration@localhost")
            dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
            run(folder, "git", *author, "commit", "--quiet", "--all", "--message", step.subject, **dates)
            self.commits.append(self._head())
        self.asv("machine", "--yes", "--machine", MACHINE)

    @property
    def results(self) -> Path:
        """asv's results_dir."""
        return self.folder / ".asv" / "results"

    def asv(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """asv in the clone, with the torch that constraints.txt pins."""
        constraint = {"PIP_CONSTRAINT": str(self.folder / "constraints.txt")}
        return run(self.folder, sys.executable, "-m", "asv", *arguments, may_fail=True, **constraint)

    def measure(self) -> None:
        """`asv run` over all commits, a round of each after the other, so that the machine's moods meet all alike."""
        hashes = self.folder / "hashes.txt"
        hashes.write_text("\n".join(self.commits), encoding="utf-8")
        print(self.asv("run", *OPTIONS, f"HASHFILE:{hashes}").stdout)

    def compare(self, base: str, new: str) -> tuple[int, list[str]]:
        """`asv continuous`: its exit status, and the benchmarks that it calls worse."""
        done = self.asv("continuous", *OPTIONS, "--factor", str(FACTOR), base, new)
        print(done.stdout)
        lines = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| +")]
        return done.returncode, [f"{cells[5].strip()} ({cells[4].strip()} ×)" for cells in lines]

    def _head(self) -> str:
        return run(self.folder, "git", "rev-parse", "HEAD").stdout.strip()


def run(folder: Path, *command: str, may_fail: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command with its output as text."""
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=not may_fail, stdout=subprocess.PIPE, text=True
    )


def follow_copy(copy: Copy) -> History:
    """`precision history` over the copy: an absolute limit for the error, and a budget for the latency."""
    first = copy.commits[0][:8]
    latencies = {each.benchmark: each.value for each in read_asv(copy.results) if each.commit == first}
    budgets = [f"{name}={LATENCY_BUDGET * value}" for name, value in latencies.items() if name.startswith("latency.")]
    return follow(asv=copy.results, limits=[f"error.*={ERROR_LIMIT}", *budgets])


def describe(copy: Copy) -> tuple[pd.DataFrame, History, list[str]]:
    """What both tools say of every step, the history, and what they got wrong."""
    copy.measure()
    history = follow_copy(copy)
    verdicts = [copy.compare(base, new) for base, new in zip(copy.commits, copy.commits[1:], strict=False)]
    lines, mistakes = [], []
    for step, commit, (status, worse) in zip(STEPS, copy.commits[1:], verdicts, strict=True):
        blamed = list(history.breaches.loc[history.breaches["commit"] == commit[:8], "benchmark"])
        for tool, names in (("asv continuous", worse), ("precision history", blamed)):
            right = [name for name in names if step.breaks and name.startswith(step.breaks)]
            if names != right or bool(step.breaks) != bool(right):
                mistakes.append(f"{tool} at {commit[:8]} ({step.subject}): {names or 'nothing'}")
        lines.append((commit[:8], step.subject, status, "; ".join(worse), "; ".join(blamed)))
    columns = [
        "commit",
        "what it does",
        "status of asv continuous",
        "worse by asv",
        "wrong since then by precision history",
    ]
    return pd.DataFrame(lines, columns=columns), history, mistakes


PAGE = """# Two faults, found at their commits

`python scripts/history_demo.py` clones this repository and puts five commits on top; two of them have a fault, three
have none. `asv run` measures them all, and `precision history` reads its results, with an error limit of {limit:g} and
a latency budget of {budget} times the first commit's. `asv continuous` compares each with its parent, by a factor of
{factor}.

{table}

{verdict}

What `precision history` prints:

```
{sentences}
```

![Error, latency and non-finite counts over the commits](demonstration.svg)

{how_to_read}
"""


def write_page(out: Path, table: pd.DataFrame, history: History, mistakes: list[str]) -> None:
    """demonstration.md and its figure."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "demonstration.svg").write_text(draw_history(history.frame, history.breaches), encoding="utf-8")
    right = "Both tools found both faults at their commits, and blamed no other commit."
    page = PAGE.format(
        factor=FACTOR,
        limit=ERROR_LIMIT,
        budget=LATENCY_BUDGET,
        table=table.to_markdown(index=False),
        verdict="\n".join(f"- Not as it should be: {mistake}" for mistake in mistakes) or right,
        sentences="\n".join(history.sentences),
        how_to_read=HOW_TO_READ,
    )
    (out / "demonstration.md").write_text(page, encoding="utf-8")


def main() -> None:
    """Run the demonstration and write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        table, history, mistakes = describe(Copy(Path(folder) / "copy"))
    write_page(out, table, history, mistakes)
    print((out / "demonstration.md").read_text(encoding="utf-8"))
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
