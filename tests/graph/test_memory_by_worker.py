"""The memory of a graph by worker and by what holds it."""

from __future__ import annotations

import numpy as np
import pytest
from dask.distributed import Client

from mgraph import DynamicGraph, GraphClosed

N = 1000
PARTS = ("structures", "times", "change_log", "results", "maintained", "region")


def test_each_part_is_counted_where_it_is(place: Client | None) -> None:
    check(place, "cpu")


@pytest.mark.gpu
def test_each_part_is_counted_on_a_gpu() -> None:
    check(None, "cuda")


def check(place: Client | None, device: str) -> None:
    rng = np.random.default_rng(1)
    with DynamicGraph(place, N, device=device, reverse=True, times="int64") as graph:
        before = graph.memory()
        assert tuple(worker.address for worker in before.workers) == graph.workers
        for worker in before.workers:
            assert worker.structures > 0 == worker.results == worker.maintained == worker.change_log
        graph.insert(*rng.integers(0, N, (2, 5000)), time=np.arange(5000))
        live, search = graph.maintain("pagerank"), graph.bfs(0)
        live.result()
        graph.insert([1, N - 1], [2, N - 2], time=[5001, 5001])
        memory = graph.memory()
        assert [worker.nbytes for worker in memory.workers] == [load.nbytes for load in graph.balance().workers]
        assert memory.nbytes == graph.nbytes
        for worker in memory.workers:
            assert all(getattr(worker, part) > 0 for part in PARTS), worker
            assert worker.free > worker.unused >= 0
        lines = repr(memory).splitlines()
        assert len(lines) == 2 + len(graph.workers)
        assert lines[0].startswith("memory: ")
        assert lines[1].split()[-5:] == ["results", "maintained", "region", "unused", "free"]
        # Closed results are gone with the next call.
        live.close()
        del live, search
        graph.insert([1], [3], time=[5002])
        assert all(worker.maintained == worker.results == 0 for worker in graph.memory().workers)
    with pytest.raises(GraphClosed):
        graph.memory()
