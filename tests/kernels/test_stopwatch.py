"""Stopwatches leave out the loading of kernels, and on a lone CPU the time of other processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.kernels import launch, load
from mgraph.kernels.stopwatch import Stopwatch, loading

CPU = Device("cpu")


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_lone_rank_on_a_cpu_counts_cpu_time_and_several_ranks_count_time():
    lone, one_of_several = Stopwatch(CPU, True), Stopwatch(CPU, False)
    time.sleep(0.1)
    burn(0.01)
    assert 0.01 <= lone.seconds() < 0.1 < one_of_several.seconds()


@pytest.mark.parametrize("alone", [True, False])
def test_loading_does_not_count_once_or_nested(alone, monkeypatch):
    watch = Stopwatch(CPU, alone)
    with loading(), loading():
        burn(0.2)
    assert 0 <= watch.seconds() < 0.1

    compiled = launch._compiled
    monkeypatch.setattr(launch, "_libraries", {})
    monkeypatch.setattr(launch, "_compiled", lambda *args: burn(0.2) or compiled(*args))
    load(CPU, "kernels/arcs.cuh")
    assert 0 <= watch.seconds() < 0.1


def test_a_full_computation_that_loads_kernels_is_thought_as_short_as_it_is(monkeypatch):
    """Else all later updates would seem to be faster, and none of them would be given up."""
    compiled = launch._compiled

    def slow(program: Any, device: Device) -> Any:
        if "incremental_paths" in program.name:
            burn(0.3)
        return compiled(program, device)

    monkeypatch.setattr(launch, "_libraries", {})
    monkeypatch.setattr(launch, "_compiled", slow)
    with DynamicGraph(n_vertices=100, directed=False, device="cpu") as graph:
        graph.insert([0, 1], [1, 2])
        graph.maintain("bfs", source=0)
        (state,) = graph._directory.coordinator._session.calls.shard.maintained.values()
        assert 0 < state.cost.seconds < 0.1
