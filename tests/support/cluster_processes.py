"""A scheduler, nannies and workers as processes of their own on the loopback interface, to be ended one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from distributed import Client
from patience import patience

from cluster import connect
from mgraph import DynamicGraph, EdgeBatch

ROOT = Path(__file__).parents[2]
LOCAL = ["--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
N = 50


def environment(gpu: str | None = None) -> dict[str, str]:
    """For a process that imports the checkout and these tests' modules, and sees one GPU of them, if it is given."""
    paths = [os.environ.get("PYTHONPATH"), *map(str, (ROOT, ROOT / "tests", Path(__file__).parent))]
    seen = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **seen}


def gpus() -> list[str]:
    """The GPUs that processes may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in named.split(",") if gpu]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    return [str(number) for number in range(listed.count("GPU "))]


def spawn(arguments: list[str], log: Path, gpu: str | None = None) -> subprocess.Popen[str]:
    """``python ARGUMENTS`` in the background, its output appended to `log`."""
    with log.open("a") as out:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=out,
            stderr=out,
            text=True,
            env=environment(gpu),
            cwd=log.parent,
        )


@dataclass
class Processes:
    """A running cluster; `nannies` and `workers` (process ids) by the address of their worker."""

    folder: Path
    scheduler: subprocess.Popen[str]
    client: Client
    nannies: dict[str, int] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"


@contextmanager
def processes(folder: Path, n: int = 2, on: Sequence[str | None] = (None,)) -> Iterator[Processes]:
    """A scheduler and `n` workers, each under a nanny of its own process; whatever became of them, none is left.

    Where `on` names GPUs, each worker sees one of them, in turn.
    """
    file, log = folder / "scheduler.json", folder / "cluster.log"
    scheduler = spawn(["-m", "dask", "scheduler", *LOCAL, "--port", "0", "--scheduler-file", str(file)], log)
    worker = ["-m", "dask", "worker", *LOCAL, "--nthreads", "1", "--scheduler-file", str(file)]
    worker += ["--death-timeout", f"{patience(40):.0f}"]  # a worker that takes longer to start ends itself
    nannies = [spawn(worker, log, on[number % len(on)]) for number in range(n)]
    cluster, pids = None, []
    try:
        client = connect(file, workers=n, timeout=patience(40))
        cluster = Processes(folder, scheduler, client)
        cluster.workers = client.run(os.getpid)
        cluster.nannies = client.run(os.getppid)
        pids = list(cluster.workers.values())
        yield cluster
    finally:
        for pid in [scheduler.pid, *(nanny.pid for nanny in nannies), *pids]:
            send(pid, signal.SIGKILL)
        if cluster is not None:
            with suppress(RuntimeError):  # Dask's, where its own reconnection gives up at the same moment
                cluster.client.close(8)
        for process in (scheduler, *nannies):
            process.wait(10)
        assert wait_until(lambda: not any(map(alive, pids)), 10), "a worker outlived its SIGKILL"


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true in time."""
    end = time.monotonic() + patience(seconds)
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def batch(seed: int = 0, n: int = N) -> EdgeBatch:
    """200 random operations on `n` vertices, a quarter of them deletions."""
    rng = np.random.default_rng(seed)
    return EdgeBatch(*rng.integers(0, n, (2, 200)), op=np.where(rng.random(200) < 0.75, 1, -1))


def assert_usable(graph: DynamicGraph, seed: int = 7) -> None:
    """Batches, reads and BFS work, and the counts add up."""
    before = graph.num_edges
    report = graph.update(batch(seed, graph.num_vertices))
    assert graph.num_edges == before + report.inserted - report.deleted == graph.to_csr().offsets[-1]
    assert len(graph.bfs(0).to_numpy()) == graph.num_vertices
