"""A rank on a CPU is killed or stopped in each stage of a program of all ranks, which meet in memory that they map."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from graph_clusters import add_algorithm, assert_clean, processes
from promise_records import note
from steps import before, hit
from test_failures import raises_in_time

from mgraph import DynamicGraph, WorkerLost
from mgraph.kernels import load

PROGRAM = str(Path(__file__).parents[1] / "support" / "losses.cuh")
N, LOST, PATIENCE, ROUNDS = 3000, 1, 3.0, 20
KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
#: of a program: before its regions grow, then by the numbers of ``losses.cuh``
STAGES = {"grow": 0, "launch": 1, "store": 2, "meeting": 3, "leave": 4}
QUICK = [("meeting", "killed"), ("store", "stopped")]  #: `make test` leaves out the others


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
                os.kill(process, number)
            check()

        world._check = leave
    program = load(shard.device, PROGRAM)
    state = world.run(
        program, "Losses", layout, 1, rounds=ROUNDS, messages=200, stage=stage, lost=LOST, process=process,
        signal=number, gone=layout.offsets["gone"],
    )  # fmt: skip
    return {"round": np.full(shard.hi - shard.lo, state["round"])}, {}


def register() -> None:
    """Add the program to this process."""
    add_algorithm("losses", losses, ["round"], [])


def mapped_regions() -> list[str]:
    """The shared memory of mgraph that this process maps."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/mgraph" in line]


@pytest.fixture
def three() -> Iterator[Client]:
    with processes(3) as client:
        client.run(register)
        register()
        yield client


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        pytest.param(stage, kind, marks=() if (stage, kind) in QUICK else pytest.mark.slow)
        for stage, kind in product(STAGES, KINDS)
    ],
)
def test_a_rank_is_lost(three, stage, kind):
    with DynamicGraph(three, N, patience=PATIENCE) as graph:
        assert graph.exchange == "peer"
        workers = graph.workers
        victim, others = workers[LOST], [worker for worker in workers if worker != workers[LOST]]
        process = three.run(os.getpid, workers=[victim])[victim]
        if stage == "grow":
            three.run(before, "grow", hit, KINDS[kind], workers=[victim])
        else:
            assert (graph.run("losses").to_numpy() == ROUNDS).all()
        with raises_in_time(WorkerLost, f"rank {LOST}, the worker at {victim}", 1 + PATIENCE * (kind == "stopped")):
            graph.run("losses", stage=STAGES[stage], process=process, number=int(KINDS[kind]))
    # The others have given all back, and take another graph.
    assert_clean(three, others)
    assert three.run(mapped_regions, workers=others) == {worker: [] for worker in others}
    with DynamicGraph(three, N, workers=others) as another:
        assert (another.run("losses").to_numpy() == ROUNDS).all()
        another.insert([1, 2], [2, 3])
        assert another.bfs(1).to_numpy()[:4].tolist() == [-1, 0, 1, 2]
    note("ranks", ranks_lost_in_a_stage_of_a_program=1)
