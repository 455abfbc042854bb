"""A call passes through few functions between the user and the first kernel: each of them has to carry something."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD
from hops import Hops, breadth
from launches import watched

from mgraph import DynamicGraph
from mgraph.structures.run import FEW

RANGES = find_spec("nvtx") is not None  #: each call is then in a range, which takes one function more
MOST = {"update": 14, "run": 16}
#: different functions, and files, of a whole call in process: an insert of one edge, its query, and a search
WIDEST = {"insert": (33, 18), "has_edges": (18, 13), "bfs": (70, 28)}


@pytest.fixture
def hops():
    return Hops()


@pytest.fixture
def graph(hops):
    with (
        watched(hops.launching),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
        DynamicGraph(client, 100) as graph,
    ):
        graph.insert([0], [1])
        graph.bfs(0)
        yield graph


@pytest.mark.parametrize("name", ["update", "run"])
def test_few_functions_lie_between_a_call_and_its_first_kernel(graph, hops, name):
    ids = np.arange(FEW + 1) % 100  # a kernel makes their keys; of fewer the host does
    found = hops.of({"update": lambda: graph.insert(ids, ids), "run": lambda: graph.bfs(0)}[name])
    for thread, functions in found.items():
        print(f"{thread}: {len(functions)}\n  " + "\n  ".join(functions))
    assert list(found) == ["user's thread", "shard's thread"]
    assert sum(map(len, found.values())) <= MOST[name] + RANGES


@pytest.mark.parametrize("name", WIDEST)
def test_few_functions_and_files_take_part_in_a_whole_call_in_process(name):
    ids = np.array([0], np.uint32), np.array([1], np.uint32)
    with DynamicGraph(n_vertices=100) as graph:
        calls = {
            "insert": lambda: graph.insert(*ids),
            "has_edges": lambda: graph.has_edges(*ids),
            "bfs": lambda: graph.bfs(0),
        }
        call = calls[name]
        for _ in range(3):  # the first calls compile, open the exchange, and pack the kernels of single edges
            for each in calls.values():
                each()
        call()  # frees the results of others
        found = breadth(call)
    for file, functions in found.items():
        print(f"{file}: {', '.join(functions)}")
    functions, files = WIDEST[name]
    assert sum(map(len, found.values())) <= functions + RANGES
    assert len(found) <= files + RANGES
