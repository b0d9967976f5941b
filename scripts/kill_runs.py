"""Kill runs at random moments, let each go on, and see that nothing was lost, doubled or changed.

    python scripts/kill_runs.py --kills 50

Status 1 when a run differs from one that nobody disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from precision.records.store import Store

CONFIG = """
title = "To be killed"

[[sweep]]
name = "plain"
methods = ["eager", "sdpa-math", "sdpa-flash"]
q_len = [8, 16]
d_k = [4, 8]

[[sweep]]
name = "differentiated"
methods = ["eager", "sdpa-math"]
dtype = "bf16"
q_len = 16
d_k = 8
seed = [0, 1]
backward = true

[[sweep]]
name = "timed"
methods = ["eager", "sdpa-math"]
dtype = "fp16"
q_len = [4, 8]
d_k = 4
latency = true
"""

# Seconds in which a row or two are measured.
_DELAY = 0.1
# What must not be measured again.
_SAMPLES = ("latency_samples", "latency_first")
_SCRIPT = """
import sys
from pathlib import Path
from precision.sweep.run import execute
execute(sys.argv[1], device="cpu", store=Path(sys.argv[2]))
"""


def start(config: Path, store: Path) -> subprocess.Popen[bytes]:
    """A run in a process that leads a group of its own, to which its workers belong."""
    return subprocess.Popen([sys.executable, "-c", _SCRIPT, str(config), str(store)], start_new_session=True)


def finish(config: Path, store: Path) -> float:
    """Run to the end, and give the seconds."""
    begin = time.perf_counter()
    if status := start(config, store).wait():
        raise SystemExit(f"a run ended with status {status}")
    return time.perf_counter() - begin


def kill(config: Path, store: Path, rows: int, delay: float = 0.0) -> None:
    """Start a run, and kill its process some seconds after it has so many rows (from its start, when they are 0).

    Raises RuntimeError when one of its workers lives on.
    """
    run = start(config, store)
    while rows and _count(store) < rows:
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    deadline = time.perf_counter() + 10
    while _lives(run.pid):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"processes of the killed run {run.pid} live on")
        time.sleep(0.01)


def read_rows(store: Path) -> pd.DataFrame:
    """The rows of the newest run, none when there is no run yet."""
    if not store.is_file():
        return pd.DataFrame()
    with Store(store) as kept:
        return kept.rows.frame(kept.runs.find().id) if kept.runs.all() else pd.DataFrame()


def differences(before: pd.DataFrame, after: pd.DataFrame, right: pd.DataFrame) -> list[str]:
    """What is wrong with a run that went on: `before` is what the kill left, `right` what nobody disturbed."""
    numbers = [name for name in right.columns if "latency" not in name]
    found = [] if after[numbers].equals(right[numbers]) else ["the rows are not those of an undisturbed run"]
    if len(before):
        kept = before.merge(after, on=["sweep", "case"], suffixes=("", "_after"))
        if len(kept) != len(before) or not all(kept[name].equals(kept[f"{name}_after"]) for name in _SAMPLES):
            found.append("rows that were there are lost or were measured again")
    return found


def _count(store: Path) -> int:
    if not store.is_file():
        return 0
    with Store(store) as kept:
        return len(kept.rows.kept(1))


def _has_ended(store: Path) -> bool:
    if not store.is_file():
        return False
    with Store(store) as kept:
        return any(run.finished for run in kept.runs.all())


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """The campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "killed.toml"
        config.write_text(CONFIG)
        duration = finish(config, folder / "right.sqlite")
        right = read_rows(folder / "right.sqlite")
        print(f"undisturbed: {len(right)} rows in {duration:.1f} s")
        for number in range(arguments.kills):
            store = folder / f"{number}.sqlite"
            rows, delay = draw.randrange(len(right)), draw.uniform(0, _DELAY)
            kill(config, store, rows, delay)
            before, had_ended = read_rows(store), _has_ended(store)
            if not had_ended:
                finish(config, store)
            found = differences(before, read_rows(store), right)
            failed += bool(found)
            when = "after its end" if had_ended else f"with {len(before)} rows"
            print(f"{number + 1}: killed {when}: {'; '.join(found) or 'equal'}", flush=True)
    print(f"{arguments.kills - failed} of {arguments.kills} runs complete with equal rows")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
