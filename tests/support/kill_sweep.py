"""Processes are killed at random moments of random streams; then the store is opened and compared.

A process of its own, `kill_writer.py`, changes a graph that comes back (``recover="auto"``), and says which epochs were
acknowledged. Workers are killed or stopped, and the writer goes on; then the writer is killed, or the scheduler and the
writer, and another client opens the store.

    python tests/support/kill_sweep.py [--kills N] [--minutes M] [--seed S] [--jobs J] [--device cuda] [--keys]
                                        [--disks local] [--in-process]

prints how many processes of each kind were killed, and how long it took to open the store. With ``--jobs``, so many
sweeps run at once, with seeds S, S + 1, ..., and share the kills; one table has the counts of all. With
``--device cuda`` each worker has a GPU, in turn. With ``--keys`` the stream has string keys, a window, and vertices
that leave with their last edge. With ``--disks local`` each rank has a store of its own; with ``--in-process`` the
graph is in the process of its writer. Several runs may go on beside each other.
"""

from __future__ import annotations

import argparse
import json
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cluster_processes import Processes, alive, environment, gpus, processes, send, wait_until
from distributed import Client
from kill_writer import MOST, OPEN_SECONDS, PATIENCE, Ids, Keys, again, warm
from promise_records import note, write

from mgraph import DynamicGraph

STEP_SECONDS = 90.0  #: in which the writer must get on: a worker that is stopped is lost after `PATIENCE`
LAST_SECONDS = 400.0  #: after the minutes of a sweep, for its last round; then it is ended
WARM_SECONDS = 400.0  #: in which the kernels are compiled, before anything is killed


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
    stream : Ids or Keys
        What the writer does, and what must be there.
    device : str
        Of the graph.
    on : sequence of str or None
        The GPUs of the workers.
    disks : "shared" | "local"
        Of the store.
    in_process : bool
        True if the graph is in the process of its writer, which is all that is killed.

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
    stream: Ids | Keys = field(default_factory=Ids)
    device: str = "cpu"
    on: Sequence[str | None] = (None,)
    disks: str = "shared"
    in_process: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    epoch: int = 0

    @property
    def kills(self) -> int:
        return killed(self.counts)

    def run(self, kills: int, minutes: float = math.inf) -> None:
        """Kill so many processes or more, on one cluster after another; begin no round after so many minutes."""
        rng, end = random.Random(self.seed), time.monotonic() + 60 * minutes
        while self.kills < kills and time.monotonic() < end:
            if self.in_process:
                self.round(None, rng, 0)
                continue
            with tempfile.TemporaryDirectory() as folder, processes(Path(folder), on=self.on) as cluster:
                for _ in range(rng.randint(1, 3)):
                    self.round(cluster, rng, min(rng.randint(1, 3), max(1, kills - self.kills - 1)))
                    if self.kills >= kills or time.monotonic() >= end or cluster.scheduler.poll() is not None:
                        break

    def round(self, cluster: Processes | None, rng: random.Random, losses: int) -> None:
        """A writer that loses workers, and is then killed, alone or with the scheduler."""
        sync, address = rng.choice(["always", "background"]), cluster.client.scheduler.address if cluster else ""
        writer = Writer([address, self.path, self.seed, sync, self.device, type(self.stream).__name__, self.disks])
        try:
            writer.wait(lambda: writer.acknowledged >= self.epoch + 1)
            for _ in range(losses):
                assert cluster is not None
                time.sleep(rng.random() * 0.5)
                self.lose(cluster, rng)
                there = writer.acknowledged
                writer.wait(lambda there=there: writer.acknowledged > there + 8)
            time.sleep(rng.random() * 0.3)
            if cluster is not None and rng.random() < 0.2:
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
        pids = pids_of(cluster.client)
        kind = rng.choices(list(self.losses), list(self.losses.values()))[0]
        for pid in pids if kind == "all workers" else [rng.choice(pids)]:
            send(pid, signal.SIGSTOP if kind == "stopped" else signal.SIGKILL)
        self.counts[kind] += 1

    def check(self, cluster: Processes | None, acknowledged: int) -> None:
        """What was acknowledged is there, of the rest a beginning, and each epoch whole."""
        began = time.monotonic()
        if cluster is None:
            graph = again(lambda: DynamicGraph.open(None, self.path, device=self.device))
        elif cluster.scheduler.poll() is None:
            how = {"patience": PATIENCE[self.device], "device": self.device}
            graph = again(lambda: DynamicGraph.open(cluster.client, self.path, **how))
        else:  # another client on another cluster: this process, without a GPU
            for pid in [*cluster.workers.values(), *cluster.nannies.values()]:
                send(pid, signal.SIGCONT)
                send(pid, signal.SIGTERM)
            graph = again(lambda: DynamicGraph.open(None, self.path, device="cpu"))
        self.seconds.append(time.monotonic() - began)
        with graph:
            assert acknowledged <= graph.epoch <= acknowledged + MOST, (acknowledged, graph.epoch)
            while self.epoch < graph.epoch:
                self.epoch += 1
                self.stream.apply(self.epoch, *self.stream.change(self.seed, self.epoch))
            self.stream.check(graph)
        self.counts["opened"] += 1
        self.counts["epochs"] = self.epoch

    def __str__(self) -> str:
        return f"seed {self.seed}: {told(self.counts, self.seconds)}"


def pids_of(client: Client) -> list[int]:
    """The processes of the workers; asked again while Dask still counts one that was killed among them."""
    end = time.monotonic() + OPEN_SECONDS
    while True:
        try:
            return list(client.run(os.getpid).values())
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def killed(counts: Counter[str]) -> int:
    return sum(counts[kind] for kind in ("worker", "all workers", "stopped", "client", "scheduler"))


def told(counts: Counter[str], seconds: list[float]) -> str:
    """A line of what was counted."""
    each = ", ".join(f"{name}: {n}" for name, n in sorted(counts.items()))
    slow = f"opened in {np.median(seconds):.1f} s, at most {max(seconds):.1f} s" if seconds else ""
    return f"{killed(counts)} kills; {each}; {slow}"


class Writer:
    """The process that runs `kill_writer.py`; a thread reads what it says."""

    def __init__(self, how: Sequence[Any]) -> None:
        command = [sys.executable, str(Path(__file__).with_name("kill_writer.py")), *map(str, how)]
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


# ---- several at once -------------------------------------------------------------------------------------------------

COUNTS = "counts: "  #: before what a job has counted


class Job:
    """A process of its own that runs this file; what it starts is in its group, and its files are in `folder`."""

    def __init__(self, folder: str, *arguments: Any) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `end`
        command, env = [sys.executable, __file__, *map(str, arguments)], {**environment(), "TMPDIR": folder}
        self.process = subprocess.Popen(
            command, stdout=self._said, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )

    def end(self, seconds: float) -> tuple[str, str | None]:
        """What it said, within so many seconds; and why it failed."""
        try:
            code = self.process.wait(None if math.isinf(seconds) else max(0.0, seconds))
            problem = f"ended with {code}" if code else None
        except subprocess.TimeoutExpired:
            problem = "did not end in time"
        self.kill()
        self._said.seek(0)
        said = self._said.read()
        self._said.close()
        return said, problem

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # workers, if it failed
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def several(options: argparse.Namespace, folder: str, on: list[str]) -> bool:
    """Run the sweeps, and print what they did together, and all that one said that failed; whether none did."""
    said, problem = Job(folder, "--warm", "--device", options.device, "--on", ",".join(on)).end(WARM_SECONDS)
    if problem is not None:
        print(f"the kernels could not be compiled: {problem}\n{said}")
        return False
    began, counts, seconds, failed, shared = time.monotonic(), Counter[str](), list[float](), 0, in_shared_memory()
    end = began + 60 * options.minutes + LAST_SECONDS
    each = ["--kills", -(-options.kills // options.jobs), "--minutes", options.minutes, "--device", options.device]
    jobs: dict[int, Job] = {}
    try:
        for number in range(options.jobs):
            seed, turn = options.seed + number, number % max(1, len(on))
            mine = ["--seed", seed, "--on", ",".join(on[turn:] + on[:turn]), *["--keys"] * options.keys]
            mine += ["--disks", options.disks, *["--in-process"] * options.in_process]
            jobs[seed] = Job(folder, *each, *mine)
        for seed in list(jobs):
            said, problem = jobs[seed].end(end - time.monotonic())
            del jobs[seed]
            for line in said.splitlines():
                if line.startswith(COUNTS):
                    found = json.loads(line.removeprefix(COUNTS))
                    counts.update(found["counts"])
                    seconds += found["seconds"]
            if problem is not None:
                failed += 1
                print(f"seed {seed} {problem}; it said:\n{said}\nthat is all that seed {seed} said", flush=True)
    finally:
        for job in jobs.values():
            job.kill()
    print("\n".join(f"{name:12} {n:8}" for name, n in sorted(counts.items())))
    print(f"seeds from {options.seed}, {options.jobs} sweeps, {failed} failed, {time.monotonic() - began:.0f} s")
    print(told(counts, seconds))
    if not failed:
        note_counts(counts, "kills-in-process" if options.in_process else RECORDS[options.disks])
        write()
    print(f"new names in /dev/shm, where other runs have theirs, too: {len(in_shared_memory() - shared)}")
    return not failed


RECORDS = {"shared": "kills", "local": "kills-local"}  #: by the disks of the store


def note_counts(counts: Counter[str], record: str = "kills") -> None:
    """Note the kills for the page of promises."""
    more = {"graphs_that_came_back": counts["recovered"], "stores_opened": counts["opened"], "epochs": counts["epochs"]}
    note(record, processes_killed_or_stopped=killed(counts), **more)


def in_shared_memory() -> set[Path]:
    """The segments of exchanges; those of a rank that was killed before all ranks had mapped it stay."""
    return set(Path("/dev/shm").glob("mgraph-*"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300, help="of all jobs together")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round of kills after so many")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--disks", choices=["shared", "local"], default="shared")
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--on", help=argparse.SUPPRESS)  # of one sweep: its GPUs
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.on is None:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(not several(options, folder, gpus() if options.device == "cuda" else []))
    on = options.on.split(",") if options.on else [None]
    if options.warm:
        warm(options.device, on)
        return
    with tempfile.TemporaryDirectory() as folder:
        stream = Keys() if options.keys else Ids()
        how = {"device": options.device, "on": on, "disks": options.disks, "in_process": options.in_process}
        sweep = Sweep(Path(folder) / "store", options.seed, stream=stream, **how)
        try:
            sweep.run(options.kills, options.minutes)
            print("nothing acknowledged was lost, and no change is there in part")
        finally:
            print(f"{sweep}\n{COUNTS}{json.dumps({'counts': sweep.counts, 'seconds': sweep.seconds})}", flush=True)


if __name__ == "__main__":
    main()
