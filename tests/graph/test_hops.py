"""A call passes through few functions between the user and the first kernel: each of them has to carry something."""

from __future__ import annotations

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from hops import hops, watched

from mgraph import DynamicGraph
from mgraph.structures.run import FEW

MOST = 16


@pytest.fixture
def graph():
    with (
        watched(),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        DynamicGraph(client, 100) as graph,
    ):
        graph.insert([0], [1])
        graph.bfs(0)
        yield graph


@pytest.mark.parametrize("name", ["update", "run"])
def test_few_functions_lie_between_a_call_and_its_first_kernel(graph, name):
    ids = np.arange(FEW + 1) % 100  # a kernel makes their keys; of fewer the host does
    found = hops({"update": lambda: graph.insert(ids, ids), "run": lambda: graph.bfs(0)}[name], name)
    for thread, functions in found.items():
        print(f"{thread}: {len(functions)}\n  " + "\n  ".join(functions))
    assert list(found) == ["user's thread", "client's loop", "worker's loop", "shard's thread"]
    assert sum(map(len, found.values())) <= MOST
