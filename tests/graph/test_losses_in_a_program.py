"""A rank is killed or stopped in each stage of a program of all ranks, which meet in memory that they map."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from fakes import wait_for
from faults import before, hit
from graph_clusters import add_algorithm, addresses, assert_clean, gpu_workers, processes
from patience import patience
from promise_records import note
from test_failures import raises_in_time

from mgraph import DynamicGraph, WorkerLost
from mgraph.kernels import load

PROGRAM = str(Path(__file__).parents[1] / "support" / "losses.cuh")
N, LOST, PATIENCE, ROUNDS = 3000, 1, 3.0, 20
RANKS = {"cpu": 3, "cuda": 2}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.multigpu(RANKS["cuda"]))]
KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
#: of a program: before its regions grow, then by the numbers of ``losses.cuh``
STAGES = {"grow": 0, "launch": 1, "store": 2, "meeting": 3, "leave": 4}
QUICK = [("meeting", "killed"), ("meeting", "stopped")]  #: `make test` leaves out the others


def losses(shard: Any, stage: int = 0, process: int = 0, number: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the program, and give each vertex the number of rounds in which the ranks have met."""
    world = shard.exchange.world(shard.device)
    assert world.mapped
    layout = world.layout(shard.partition, 1000, gone=64)
    word = world.array(layout, "gone", 1, np.uint32)
    word[0] = 0
    shard.exchange.barrier()
    if stage == STAGES["leave"] and shard.rank == LOST:
        check, looks = world._check, count()

        def leave() -> None:
            if next(looks) == 1:  # the host's second look is when the program has left
                word[0] = 1
                shard.device.synchronize()
                os.kill(process, number)
            check()

        world._check = leave
    # A thread sends the signal for which the program asks.
    words, alarm = shard.device.mailbox(2)
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if words[0]:
                os.kill(process, number)
                words[1] = 1
                return
            time.sleep(0.001)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        state = world.run(
            load(shard.device, PROGRAM), "Losses", layout, 1, rounds=ROUNDS, messages=200, stage=stage, lost=LOST,
            alarm=alarm, gone=layout.offsets["gone"],
        )  # fmt: skip
    finally:
        over.set()
        watcher.join()
    return {"round": shard.device.asarray(np.full(shard.hi - shard.lo, state["round"]))}, {}


def register() -> None:
    """Add the program to this process."""
    add_algorithm("losses", losses, ["round"], [])


def held() -> tuple[list[str], int]:
    """The shared memory of mgraph that this process maps, and the bytes of its GPU that CuPy's pool has given out."""
    gc.collect()
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/mgraph" in line]
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return maps, 0
    import cupy

    return maps, int(cupy.get_default_memory_pool().used_bytes())


@pytest.fixture(scope="module")
def gpus() -> Iterator[Client]:
    """Workers with a GPU each: a nanny starts another process in place of one that is killed."""
    with gpu_workers(RANKS["cuda"]) as client:
        yield client


@pytest.fixture
def ranks(device: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A worker per rank, which knows the program."""
    register()
    if device == "cuda":
        client = request.getfixturevalue("gpus")
        client.wait_for_workers(RANKS[device], timeout=patience(60))
        client.run(register)
        yield client
        return
    with processes(RANKS[device]) as client:
        client.run(register)
        yield client


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def works_beside(client: Client, workers: list[str], device: str, process: int) -> Iterator[None]:
    """Show that another graph of `workers` works while `process` is stopped, and is awaited."""
    over = threading.Event()

    def use(graph: DynamicGraph) -> list[float]:
        assert wait_for(lambda: is_stopped(process), 10)
        times = []
        while not over.is_set():
            began = time.monotonic()
            assert (graph.run("losses").to_numpy() == ROUNDS).all()
            graph.insert([1, 2], [2, 3 + len(times) % 2])
            assert graph.bfs(1).to_numpy()[:3].tolist() == [-1, 0, 1]
            times.append(time.monotonic() - began)
        return times

    with DynamicGraph(client, N, workers=workers, device=device) as graph, ThreadPoolExecutor(1) as pool:
        graph.run("losses")
        used = pool.submit(use, graph)
        try:
            yield
        finally:
            over.set()
        times = used.result(patience(60))
    assert len(times) >= 5 and max(times) < patience(PATIENCE / 2), times


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        pytest.param(stage, kind, marks=() if (stage, kind) in QUICK else pytest.mark.slow)
        for stage, kind in product(STAGES, KINDS)
    ],
)
def test_a_rank_is_lost(ranks, stage, kind, device):
    with DynamicGraph(ranks, N, patience=PATIENCE, device=device) as graph:
        assert graph.exchange == "peer"
        workers = graph.workers
        victim, others = workers[LOST], [worker for worker in workers if worker != workers[LOST]]
        process = ranks.run(os.getpid, workers=[victim])[victim]
        if stage == "grow":
            ranks.run(before, "grow", hit, KINDS[kind], workers=[victim])
        else:
            assert (graph.run("losses").to_numpy() == ROUNDS).all()
        limit = (1 if device == "cpu" else 2) + PATIENCE * (kind == "stopped")
        with (
            works_beside(ranks, others, device, process) if kind == "stopped" else nullcontext(),
            raises_in_time(WorkerLost, f"rank {LOST}, the worker at {victim}", limit),
        ):
            graph.run("losses", stage=STAGES[stage], process=process, number=int(KINDS[kind]))
    # The others have given all back, and take another graph.
    assert_clean(ranks, others)
    for maps, nbytes in ranks.run(held, workers=others).values():
        assert maps == []
        assert nbytes < 1 << 20
    with DynamicGraph(ranks, N, workers=others, device=device) as another:
        assert (another.run("losses").to_numpy() == ROUNDS).all()
        another.insert([1, 2], [2, 3])
        assert another.bfs(1).to_numpy()[:4].tolist() == [-1, 0, 1, 2]
    if device == "cuda":  # for the next case a nanny starts another process
        if kind == "stopped":
            os.kill(process, signal.SIGKILL)
        assert wait_for(lambda: victim not in addresses(ranks), 10)
    note("ranks" if device == "cpu" else "ranks-gpus", ranks_lost_in_a_stage_of_a_program=1)
