"""Several workers, here or on a Dask cluster: the same rows, and no latency beside another case."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch

from precision.errors import UsageError
from precision.problem import Problem, Shape
from precision.records.row import Row
from precision.sweep import cluster
from precision.sweep.config import parse_config
from precision.sweep.grid import plan
from precision.sweep.local import LocalWorkers
from precision.sweep.measurer import Measurer
from precision.sweep.run import execute
from precision.sweep.stopwatch import Stopwatch
from precision.sweep.task import Task, Work, group, split
from precision.sweep.worker import Settings
from precision.sweep.workers import open_workers
from scripts.kill_runs import CONFIG, differences, read_rows

# Dask's nanny sets one thread, and rows of another number of threads are those of another environment.
THREADS = {name: torch.get_num_threads() for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
DASK = json.dumps({"distributed": {"nanny": {"pre-spawn-environ": THREADS}}})  # which is YAML, too


def test_two_processes_give_the_rows_of_one(config, right, tmp_path):
    path = tmp_path / "s.sqlite"
    execute(str(config), device="cpu", store=path, jobs=2)
    assert differences(right[:0], read_rows(path), right) == []


class Counting(Measurer):
    """A measurer that notes how many others work while it does."""

    lock = threading.Lock()
    busy = 0
    seen = ()

    def __init__(self, settings):
        super().__init__(Stopwatch())

    def measure_case(self, problem, method, backward):
        return self._work(Row({"case": problem.key, "method": method, "status": "ok", "rows": 1}), timed=False)

    def sample(self, task, rows):
        return [self._work(row, timed=True) for row in rows]

    def close(self):
        pass

    def _work(self, row, timed):
        with self.lock:
            Counting.busy += 1
            Counting.seen += ((timed, self.busy),)
        time.sleep(0.002)
        with self.lock:
            Counting.busy -= 1
        return row


def test_a_latency_is_sampled_while_nothing_else_runs(monkeypatch):
    monkeypatch.setattr("precision.sweep.local.IsolatedBench", Counting)
    problems = [Problem(Shape(1, 1, 1, length, 4, 4, 4), "fp32") for length in range(1, 13)]
    tasks = [Task("s", problem, ("eager", "sdpa"), False, number % 3 == 0) for number, problem in enumerate(problems)]
    with LocalWorkers(4, Settings()) as workers:
        batches = list(workers.measure(group(Work(index, task, {}) for index, task in enumerate(tasks))))
    assert sorted(len(batch.rows) for batch in batches) == [1] * 16 + [2] * 4
    assert max(busy for timed, busy in Counting.seen if not timed) > 1
    assert {busy for timed, busy in Counting.seen if timed} == {1}


def test_an_error_in_one_worker_ends_all_of_them(monkeypatch):
    """As when a capture file is gone: no thread may wait for work that never comes."""

    class Failing(Counting):
        def measure_case(self, problem, method, backward):
            raise UsageError("the file is gone")

    monkeypatch.setattr("precision.sweep.local.IsolatedBench", Failing)
    tasks = [
        Task("s", Problem(Shape(1, 1, 1, length, 4, 4, 4), "fp32"), ("eager",), False, False) for length in (1, 2, 3)
    ]
    before = set(threading.enumerate())
    with LocalWorkers(2, Settings()) as workers, pytest.raises(UsageError, match="gone"):
        list(workers.measure(group(Work(index, task, {}) for index, task in enumerate(tasks))))
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_tasks_that_share_their_unrounded_inputs_are_one_job():
    works = [Work(index, task, {}) for index, task in enumerate(plan(parse_config(CONFIG)))]
    jobs = group(works)
    assert [work for job in jobs for work in job] == works
    assert [len(job) for job in jobs] == [
        3,
        3,
        3,
        4,
        1,
        1,
        1,
    ]  # the last of the plain ones has the inputs of the next sweep's first
    for job in jobs:
        assert len({replace(work.task.problem, dtype="fp64") for work in job}) == 1
    untimed, timed = split(jobs)
    assert untimed == jobs[:5] and timed == jobs[5:]


@pytest.mark.parametrize(("jobs", "scheduler"), [(0, None), (2, "tcp://127.0.0.1:8786")])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(jobs, scheduler):
    with pytest.raises(UsageError, match="jobs"):
        open_workers(jobs, scheduler, Settings())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere"])
def test_a_scheduler_that_does_not_answer_is_one_sentence(monkeypatch, address):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.3)
    with pytest.raises(UsageError, match=f"'{address}'"):
        open_workers(1, address, Settings())


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """A scheduler and two workers on loopback, as the command line starts them; the first may sample latencies."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    (folder / "dask.yaml").write_text(DASK)
    environment = {**os.environ, "DASK_CONFIG": str(folder)}
    started = []

    def start(kind, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", "--host", "127.0.0.1"]
        command += ["--scheduler-file", str(file), *arguments]
        with (folder / f"{len(started)}.log").open("w") as log:
            started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log))

    try:
        start("scheduler", "--port", "0")
        for name, extra in (("first", ["--resources", f"{cluster.RESOURCE}=1"]), ("second", [])):
            start("worker", "--nthreads", "1", "--name", name, "--local-directory", str(folder), *extra)
        while not file.is_file():
            time.sleep(0.05)
        with cluster.connect(scheduler_file=str(file)) as client:
            client.wait_for_workers(2, timeout=60)
            yield client
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


def test_a_cluster_gives_the_rows_of_one_worker_though_one_of_its_own_is_killed(config, right, tmp_path, scheduler):
    path = tmp_path / "s.sqlite"
    killed = []

    def listen(progress):
        if progress.done == 4:
            killed.extend(scheduler.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    execute(str(config), device="cpu", store=path, scheduler=scheduler.scheduler.address, listener=listen)
    assert len(killed) == 2
    assert differences(right[:0], read_rows(path), right) == []


def test_latencies_need_a_worker_that_offers_its_device(config, tmp_path, scheduler, monkeypatch):
    monkeypatch.setattr(cluster, "RESOURCE", "no-such-device")
    with pytest.raises(UsageError, match="--resources no-such-device=1"):
        execute(str(config), device="cpu", store=tmp_path / "s.sqlite", scheduler=scheduler.scheduler.address)
    assert len(read_rows(tmp_path / "s.sqlite")) == 0
