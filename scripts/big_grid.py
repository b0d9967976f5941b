"""How long 100,000 cases take to plan, reuse, report, show, compare, export and follow, and how large all of it is.

    python scripts/big_grid.py [SEEDS]

The rows are drawn, not measured (tests/made_store.py): 59 seeds are 101,352 cases, two runs of them. Each step is a
process of its own, whose peak memory is printed beside its seconds.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_TESTS = Path(__file__).parents[1] / "tests"
_PLAN = """
import sys
from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from made_store import config_text
text = config_text(int(sys.argv[1]))
import time
begin = time.perf_counter()
tasks = plan(parse_config(text))
print(sum(len(task.methods) for task in tasks), "cases planned in", round(time.perf_counter() - begin, 2), "s")
"""
_MAKE = """
import sys
from pathlib import Path
from made_store import make_store
print(make_store(Path("store.sqlite"), int(sys.argv[1]), ["first", "second"]), "rows in each of two runs")
"""
_REUSE = """
import sys
from functools import partial
from pathlib import Path
from precision.records.store import Store
from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from precision.sweep.reuse import reuse, wanted
from precision.sweep.task import Plan
from made_store import ENVIRONMENT, config_text
tasks = tuple(plan(parse_config(config_text(int(sys.argv[1])))))
revisions = {method: "" for task in tasks for method in task.methods}
works = wanted(Plan(tasks, "0+0", ENVIRONMENT, revisions), {})
with Store(Path("store.sqlite")) as store:
    known = partial(store.rows.known, code="0+0", environment=ENVIRONMENT)
    found = sum(len(batch.rows) for part in reuse(works, known, revisions) for batch in part.batches)
print(found, "rows of an earlier run are taken over")
"""
_STEPS = {
    "report": ["report", "--out", "report"],
    "show": ["show"],
    "show csv": ["show", "--format", "csv"],
    "show json": ["show", "--format", "json"],
    "compare": ["compare", "1", "2"],
    "export csv": ["export", "rows.csv"],
    "export parquet": ["export", "rows.parquet"],
    "history": ["history"],
}


def main(seeds: str) -> None:
    """Print one line a step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _measure("plan", [sys.executable, "-c", _PLAN, seeds], folder)
        _measure("make the store", [sys.executable, "-c", _MAKE, seeds], folder)
        _measure("reuse", [sys.executable, "-c", _REUSE, seeds], folder)
        for step, arguments in _STEPS.items():
            _measure(step, [sys.executable, "-m", "precision", *arguments, "--store", "store.sqlite"], folder)
        print(f"report folder: {_size(folder / 'report'):.1f} MB; store: {_size(folder / 'store.sqlite'):.0f} MB")


def _measure(step: str, command: list[str], folder: Path) -> None:
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(_TESTS)}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of all that ended so far
    last = (done.stderr or done.stdout).strip().splitlines()[-1:]
    print(
        f"{step}: {seconds:.1f} s, peak so far {largest:.0f} MiB; {len(done.stdout):,} characters; {last}", flush=True
    )


def _size(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "59")
