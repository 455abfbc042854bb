"""Programs that are loaded in one block compile at the same time."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import compile_together, launch, load

FILES = ("kernels/arcs.cuh", "kernels/merge.cuh")


@pytest.fixture
def cpu(monkeypatch) -> Device:
    """A CPU for which nothing is loaded yet."""
    monkeypatch.setattr(launch, "_libraries", {})
    return Device("cpu")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs compile two programs at the same time")
def test_two_programs_compile_at_the_same_time_and_the_first_use_waits(cpu, monkeypatch):
    both, compiled = threading.Barrier(2), launch._compiled

    def meet(*args: Any) -> Any:
        both.wait(60)
        return compiled(*args)

    monkeypatch.setattr(launch, "_compiled", meet)
    with compile_together():
        arcs, merge = (load(cpu, file) for file in FILES)
        keys = np.zeros(1, np.uint64)
        ids = np.array([3], np.uint32)
        arcs.Arcs(1, src=ids, dst=ids, order=None, n=1, vertices=4, stride=1, keys=keys, largest=None)
    assert keys.tolist() == [3 << 32 | 3]
    assert merge.Merge.source.name == "Merge"
    assert load(cpu, FILES[0]) is arcs
    with pytest.raises(AttributeError, match="no kernel 'Nothing' here, only"):
        _ = arcs.Nothing


def test_the_block_raises_the_first_error_and_the_next_load_compiles_again(cpu, monkeypatch):
    compiled = launch._compiled

    def fail(program: Any, device: Device) -> Any:
        if "merge" in program.name:
            raise DeviceError(f"no space for {program.name}")
        return compiled(program, device)

    monkeypatch.setattr(launch, "_compiled", fail)
    with pytest.raises(DeviceError, match="no space for .*merge"), compile_together():
        libraries = [load(cpu, file) for file in FILES]
    assert load(cpu, FILES[0]) is libraries[0]
    monkeypatch.undo()
    monkeypatch.setattr(launch, "_libraries", {})
    assert load(cpu, FILES[1]).Merge.source.name == "Merge"


def test_an_error_of_the_block_itself_stays_and_blocks_nest(cpu):
    with pytest.raises(KeyError, match="mine"), compile_together(), compile_together():
        load(cpu, FILES[0])
        raise KeyError("mine")
    assert load(cpu, FILES[0]).Arcs.source.name == "Arcs"


@pytest.mark.parametrize(
    ("search", "options"),
    [
        ("bfs", {"predecessors": True}),
        ("sssp", {"dtype": "float64"}),
        ("shortest_path", {"target": 1}),
        ("shortest_path", {"target": 1, "weight": True}),
    ],
)
def test_no_variant_of_a_search_compiles_alone(search, options, monkeypatch):
    threads, compiled = list[str](), launch._compiled

    def noted(program: Any, device: Device) -> Any:
        if program.name.startswith("algorithms/paths/"):
            threads.append(threading.current_thread().name)
        return compiled(program, device)

    with DynamicGraph(n_vertices=2, weighted=True) as graph:
        graph.insert([0], [1], [0.5])
        monkeypatch.setattr(launch, "_libraries", {})
        monkeypatch.setattr(launch, "_compiled", noted)
        getattr(graph, search)(0, **options)
    assert len(threads) > 1
    assert all(name.startswith("mgraph-compile") for name in threads)
