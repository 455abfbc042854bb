"""A forked child cannot use its parent's graph on a cluster: both would read answers from the same sockets."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import Any

import numpy as np
import pytest
from graph_clusters import assert_clean
from patience import patience

from mgraph import DynamicGraph, EdgeBatch, GraphClosed


def calls(graph: DynamicGraph, result: Any, live: Any) -> list[Any]:
    return [
        lambda: graph.insert([1], [2]),
        lambda: graph.insert(np.arange(40_000) % 90, np.arange(40_000) // 90 % 90),
        lambda: graph.update(EdgeBatch([1], [2])),
        lambda: graph.ingest(lambda rank, size, step: None),
        lambda: graph.has_edges([1], [2]),
        lambda: graph.bfs(0),
        lambda: graph.to_csr(),
        lambda: graph.rebalance(),
        live.result,
        result.to_numpy,
        lambda: result.top(3),
    ]


def refused(graph: DynamicGraph, result: Any, live: Any) -> bool:
    """Check that each call raises `GraphClosed`, and that `close` ends."""
    try:
        for call in calls(graph, result, live):
            with pytest.raises(GraphClosed, match=f"is of process {os.getppid()}, of which this one is a fork"):
                call()
        with pytest.raises(GraphClosed), graph.pipeline() as pipeline:
            pipeline.insert([1], [2])
        graph.close()
    except BaseException:  # pytest is the parent's
        traceback.print_exc(file=sys.__stderr__)
        return False
    return True


@pytest.mark.parametrize("options", [{}, {"recover": "auto"}], ids=str)
def test_a_child_is_refused_and_the_parent_goes_on(client, tmp_path, options):
    with DynamicGraph(client, 100, store=tmp_path / "store", **options) as graph:
        graph.insert(np.arange(99), np.arange(99) + 1)
        result, live, epoch = graph.pagerank(), graph.maintain("connected_components"), graph.epoch
        if (child := os.fork()) == 0:
            os._exit(not refused(graph, result, live))
        end = time.monotonic() + patience(20)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            assert graph.has_edges([3], [4])[0]
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
        assert ended[1] == 0
        assert (graph.epoch, graph.insert([5], [99]).inserted, live.result().components) == (epoch, 1, 1)
        assert len(result.to_numpy()) == 100
    assert_clean(client)
