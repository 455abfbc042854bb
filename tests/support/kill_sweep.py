"""Processes are killed at random moments of random streams; then the store is opened and compared.

A process of its own, the writer, changes a graph that comes back (``recover="auto"``), and says which epochs were
acknowledged. What an epoch changes follows from the seed and its number, so that the graph of any epoch is known.
Workers are killed or stopped, and the writer goes on; then the writer is killed, or the scheduler and the writer, and
another client opens the store.

    python tests/support/kill_sweep.py [--kills N] [--minutes M] [--seed S]

prints how many processes of each kind were killed, and how long it took to open the store.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cluster_processes import Processes, alive, environment, processes, send, wait_until
from distributed import Client
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, MgraphError, StoreError

N = 150
OPEN_SECONDS = 60.0  #: in which a store can be opened after a kill, on a machine that does other things, too
STEP_SECONDS = 90.0  #: in which the writer must get on: a worker that is stopped is lost after `PATIENCE`
PATIENCE = 3.0


def change_of(seed: int, epoch: int) -> tuple[str, Any]:
    """What an epoch changes: its kind, and a batch, ids, or a number of vertices."""
    rng = np.random.default_rng([seed, epoch])
    kind = str(rng.choice(["batch", "add", "delete"], p=[0.9, 0.05, 0.05]))
    if kind == "batch":
        return kind, random_batch(rng, N, int(rng.integers(1, 1500)), True)
    return kind, (2 if kind == "add" else rng.integers(0, N, 5))


def apply(model: GraphModel, kind: str, what: Any) -> None:
    """One epoch more."""
    if kind == "batch":
        model.update(what)
    elif kind == "add":
        model.n_vertices += what
    else:
        model.delete_vertices(what.tolist())


# ---- the writer ------------------------------------------------------------------------------------------------------


def write(address: str, path: str, seed: int, sync: str) -> None:
    """Open or make the graph, and change it until this process is killed."""
    rng = random.Random()
    options: dict[str, Any] = {
        "sync": sync, "recover": "auto", "max_recoveries": 8, "patience": PATIENCE, "snapshot_bytes": 300_000,
    }  # fmt: skip
    with Client(address) as client:
        if Path(path, "store.json").exists():
            graph = again(lambda: DynamicGraph.open(client, path, **options))
        else:
            graph = DynamicGraph(client, N, weighted=True, store=path, **options)
        while True:
            print("ack", graph.epoch, len(graph.recoveries), flush=True)
            changes = [change_of(seed, graph.epoch + i) for i in range(1, 1 + rng.choice([1, 4]))]
            batches = [what for kind, what in changes if kind == "batch"]
            if len(batches) < len(changes) or len(batches) == 1:
                one(graph, *changes[0])
            elif rng.random() < 0.5:
                with graph.pipeline() as flight:
                    for batch in batches:
                        flight.update(batch)
            else:
                graph.ingest(lambda rank, size, step, batches=batches: part(batches, rank, size, step))
            if rng.random() < 0.2:
                graph.bfs(0).to_numpy() if rng.random() < 0.5 else graph.degrees()


def one(graph: DynamicGraph, kind: str, what: Any) -> None:
    if kind == "batch":
        graph.update(what)
    elif kind == "add":
        graph.add_vertices(what)
    else:
        graph.delete_vertices(what)


def part(batches: list[Any], rank: int, size: int, step: int) -> Any:
    if step == len(batches):
        return None
    n = len(batches[step])
    return batches[step][n * rank // size : n * (rank + 1) // size]


def again(opened: Any, seconds: float = OPEN_SECONDS) -> DynamicGraph:
    """What `opened` returns; tried again while workers start or a killed graph is still being closed."""
    end = time.monotonic() + seconds
    while True:
        try:
            return opened()
        except MgraphError as error:
            damaged = isinstance(error, StoreError) and "in use" not in str(error)
            if damaged or time.monotonic() > end:
                raise
            time.sleep(0.1)


# ---- the one who kills -----------------------------------------------------------------------------------------------


@dataclass
class Sweep:
    """The state of a sweep.

    Parameters
    ----------
    path : Path
        Of the store.
    seed : int
    losses : dict
        How often the writer loses what, in proportion.

    Attributes
    ----------
    counts : Counter
        Killed processes by kind, `opened` stores, `recovered` graphs, `epochs`.
    seconds : list of float
        How long each opening took after a kill of the writer.
    """

    path: Path
    seed: int
    losses: dict[str, int] = field(default_factory=lambda: {"worker": 6, "all workers": 1, "stopped": 1})
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    model: GraphModel = field(default_factory=lambda: GraphModel(N, weighted=True))
    epoch: int = 0

    @property
    def kills(self) -> int:
        return sum(self.counts[kind] for kind in ("worker", "all workers", "stopped", "client", "scheduler"))

    def run(self, kills: int, minutes: float = math.inf) -> None:
        """Kill so many processes or more, on one cluster after another; begin no round after so many minutes."""
        rng, end = random.Random(self.seed), time.monotonic() + 60 * minutes
        while self.kills < kills and time.monotonic() < end:
            with tempfile.TemporaryDirectory() as folder, processes(Path(folder)) as cluster:
                for _ in range(rng.randint(1, 3)):
                    self.round(cluster, rng, min(rng.randint(1, 3), max(1, kills - self.kills - 1)))
                    if self.kills >= kills or time.monotonic() >= end or cluster.scheduler.poll() is not None:
                        break

    def round(self, cluster: Processes, rng: random.Random, losses: int) -> None:
        """A writer that loses workers, and is then killed, alone or with the scheduler."""
        sync = rng.choice(["always", "background"])
        writer = Writer(cluster.client.scheduler.address, self.path, self.seed, sync)
        try:
            writer.wait(lambda: writer.acknowledged >= self.epoch + 1)
            for _ in range(losses):
                time.sleep(rng.random() * 0.5)
                self.lose(cluster, rng)
                there = writer.acknowledged
                writer.wait(lambda there=there: writer.acknowledged > there + 8)
            time.sleep(rng.random() * 0.3)
            if rng.random() < 0.2:
                send(cluster.scheduler.pid, signal.SIGKILL)
                cluster.scheduler.wait(10)
                self.counts["scheduler"] += 1
                time.sleep(rng.random())
        finally:
            writer.kill()
        self.counts["client"] += 1
        self.counts["recovered"] += writer.recoveries
        self.check(cluster, writer.acknowledged)

    def lose(self, cluster: Processes, rng: random.Random) -> None:
        pids = list(cluster.client.run(os.getpid).values())
        kind = rng.choices(list(self.losses), list(self.losses.values()))[0]
        for pid in pids if kind == "all workers" else [rng.choice(pids)]:
            send(pid, signal.SIGSTOP if kind == "stopped" else signal.SIGKILL)
        self.counts[kind] += 1

    def check(self, cluster: Processes, acknowledged: int) -> None:
        """What was acknowledged is there, of the rest a beginning, and each epoch whole."""
        began = time.monotonic()
        if cluster.scheduler.poll() is None:
            graph = again(lambda: DynamicGraph.open(cluster.client, self.path, patience=PATIENCE))
        else:  # another client on another cluster: this process
            for pid in [*cluster.workers.values(), *cluster.nannies.values()]:
                send(pid, signal.SIGCONT)
                send(pid, signal.SIGTERM)
            graph = again(lambda: DynamicGraph.open(None, self.path))
        self.seconds.append(time.monotonic() - began)
        with graph:
            assert acknowledged <= graph.epoch <= acknowledged + 4, (acknowledged, graph.epoch)
            while self.epoch < graph.epoch:
                self.epoch += 1
                apply(self.model, *change_of(self.seed, self.epoch))
            same(graph, self.model)
        self.counts["opened"] += 1
        self.counts["epochs"] = self.epoch

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {n}" for name, n in sorted(self.counts.items()))
        slow = f"opened in {np.median(self.seconds):.1f} s, at most {max(self.seconds):.1f} s" if self.seconds else ""
        return f"seed {self.seed}: {self.kills} kills; {counts}; {slow}"


def same(graph: DynamicGraph, model: GraphModel) -> None:
    csr = graph.to_csr()
    src = np.repeat(np.arange(graph.num_vertices), np.diff(csr.offsets))
    assert csr.weight is not None
    found = dict(zip(zip(src.tolist(), csr.dst.tolist(), strict=True), csr.weight.tolist(), strict=True))
    assert graph.num_vertices == model.n_vertices
    assert found == model.arcs()


class Writer:
    """The process that runs `write`; a thread reads what it says."""

    def __init__(self, address: str, path: Path, seed: int, sync: str) -> None:
        command = [sys.executable, __file__, "--write", address, str(path), str(seed), sync]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `kill`
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment()
        )
        self.acknowledged = self.recoveries = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ack ") and line.endswith("\n"):
                self.acknowledged, self.recoveries = map(int, line.split()[1:])

    def wait(self, true: Any) -> None:
        """Wait until it is true; it is an error if the writer ends before, or does not get on."""
        if not wait_until(lambda: true() or not alive(self.process.pid), STEP_SECONDS) or not true():
            self._errors.seek(0)
            raise AssertionError(
                f"the writer does not get on at epoch {self.acknowledged}: {self._errors.read()[-6000:]}"
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round of kills after so many")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        address, path, seed, sync = options.write
        write(address, path, int(seed), sync)
        return
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(Path(folder) / "store", options.seed)
        try:
            sweep.run(options.kills, options.minutes)
            print("nothing acknowledged was lost, and no change is there in part")
        finally:
            print(sweep, flush=True)


if __name__ == "__main__":
    main()
