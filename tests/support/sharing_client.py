"""Clients of a published graph, each in a process of its own, which call it until they are killed.

``python sharing_client.py`` forks a client for each line ``ADDRESS NAME SEED KIND`` that it reads, so that a client
takes no time to start. It prints its process id after its first call.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
from cluster_processes import environment
from distributed import Client
from keyed_model import keys_of
from patience import patience

from mgraph import DynamicGraph, EdgeBatch
from mgraph.tables.ids import KINDS

N, EDGES = 64, 400


def batch(seed: int, epoch: int) -> EdgeBatch:
    """The batch with which the graph comes to an epoch, whoever applies it: inserts and deletes."""
    rng = np.random.default_rng([seed, epoch])
    src, dst = rng.integers(0, N, (2, EDGES))
    return EdgeBatch(src, dst, op=rng.choice([1, -1], EDGES))


def write(graph: DynamicGraph, seed: int) -> None:
    """Apply the next batch. Nobody else writes between the read of the epoch and the batch."""
    with graph._directory.coordinator.lock:
        graph.update(batch(seed, graph.epoch + 1))


def write_keys(graph: DynamicGraph, seed: int) -> None:
    """As `write`, for a graph with keys: edges with new ones, and in every third epoch vertices go."""
    with graph._directory.coordinator.lock:
        rng = np.random.default_rng([seed, graph.epoch + 1])
        src, dst = (keys_of(graph.keys, ends) for ends in rng.integers(0, 5 * N, (2, EDGES // 8)))
        names = graph.vertices()
        if graph.epoch % 3 < 2:
            graph.update(EdgeBatch(src, dst, op=rng.choice([1, 1, -1], len(src)), keys=graph.keys))
        else:
            graph.delete_vertices(names[np.unique(rng.integers(0, len(names), len(names) // 4))])


def call(address: str, name: str, seed: int, kind: str) -> None:
    """Call the graph again and again, in one way."""
    with Client(address) as client, DynamicGraph.attach(client, name) as graph:
        for n in range(1 << 30):
            if kind == "update":
                write(graph, seed)
            elif kind == "pipeline":
                with graph.pipeline() as pipeline:
                    first = graph.epoch + 1
                    for epoch in range(first, first + 20):
                        pipeline.update(batch(seed, epoch))
            elif kind in KINDS:
                write_keys(graph, seed)
            elif kind == "move":
                graph.rebalance()
                graph.reorder()
            else:
                graph.pagerank(tol=1e-12).close()
            if n == 0:
                print(os.getpid(), flush=True)


class Clients:
    """Starts clients, and ends those that are left."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pids: list[int] = []

    def start(self, address: str, name: str, seed: int, kind: str) -> int:
        """A client that calls the graph; its process id, after its first call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{address} {name} {seed} {kind}\n")
        self._process.stdin.flush()
        self.pids.append(int(self._process.stdout.readline()))
        return self.pids[-1]

    def end(self, pid: int) -> None:
        """Kill a client, and wait until it is gone."""
        end = time.monotonic() + patience(20)
        with suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
            raise TimeoutError(f"process {pid} does not end")


@contextmanager
def clients() -> Iterator[Clients]:
    """A process that starts clients."""
    script = [sys.executable, "-u", __file__]
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        made = Clients(process)
        try:
            yield made
        finally:
            for pid in made.pids:
                made.end(pid)
            process.kill()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended clients are gone
    for line in sys.stdin:
        if os.fork() == 0:
            address, name, seed, kind = line.split()
            call(address, name, int(seed), kind)


if __name__ == "__main__":
    main()
