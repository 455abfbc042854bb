"""Bad input raises a typed error that names the value and the limit, before anything changed."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from fakes import wait_for
from graph_clusters import NO_DASHBOARD, assert_clean, sessions

from mgraph import (
    MAX_VERTICES,
    AsyncDynamicGraph,
    CapacityError,
    DeviceError,
    DynamicGraph,
    EdgeBatch,
    GraphClosed,
    InvalidBatch,
    InvalidOption,
    UnknownVertex,
)

N = 10


@pytest.fixture(scope="module")
def graph(place):
    with DynamicGraph(place, N) as graph:
        graph.insert([0, 1], [1, 2])
        yield graph


@pytest.fixture(autouse=True)
def unchanged(graph):
    yield
    assert (graph.epoch, graph.num_edges, graph.num_vertices) == (1, 2, N)


@pytest.mark.parametrize(
    ("src", "dst", "error", "message"),
    [
        ([0, N], [1, 1], UnknownVertex, r"src\[1\] is 10; the graph has 10 vertices"),
        ([0], [4000000000], UnknownVertex, r"dst\[0\] is 4000000000"),
        ([0, 3], [1, -1], InvalidBatch, r"dst\[1\] is -1"),
        ([0, 1], [1], InvalidBatch, r"has shape"),
    ],
)
@pytest.mark.parametrize("method", ["insert", "delete", "has_edges"])
def test_ids(graph, method, src, dst, error, message):
    with pytest.raises(error, match=message):
        getattr(graph, method)(src, dst)


@pytest.mark.parametrize("method", ["degrees", "neighbors", "delete_vertices"])
@pytest.mark.parametrize(("ids", "error"), [([N], UnknownVertex), ([-1], InvalidBatch), ([1.5], InvalidBatch)])
def test_ids_of_vertices(graph, method, ids, error):
    with pytest.raises(error, match=r"ids\[0\] is"):
        getattr(graph, method)(ids)


def test_weights(graph):
    with pytest.raises(InvalidBatch, match="create it with weighted=True"):
        graph.insert([0], [1], [2.0])


def test_update_wants_a_batch_or_a_table(graph):
    with pytest.raises(TypeError, match=r"an EdgeBatch or a table of named columns, got tuple; insert\(\)"):
        graph.update(([0], [1]))
    with (
        graph.pipeline() as stream,
        pytest.raises(TypeError, match=r"a pipeline takes an EdgeBatch, got tuple; stream\(\)"),
    ):
        stream.update(([0], [1]))
    for change in (graph.insert, graph.delete):
        with pytest.raises(TypeError, match=r"give it to update\(\)"):
            change(EdgeBatch([0], [1]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "list"}, InvalidOption, "structure 'list' is none of '"),
        ({"structure": None}, InvalidOption, "structure None is no name"),
        ({"structure": "gpma+:root_density=0.8"}, InvalidOption, "no option 'root_density'; its options are"),
        ({"workers": []}, InvalidOption, "workers is empty; a graph needs at least 1"),
        ({"workers": ["tcp://1.2.3.4:5"]}, InvalidOption, "'tcp://1.2.3.4:5' is not in the cluster"),
        ({"workers": "tcp://1.2.3.4:5"}, InvalidOption, "must be a list of addresses"),
        ({"workers": 2}, InvalidOption, r"workers is 2; it must be a list of addresses; client.nthreads\(\) has"),
        ({"device": "tpu"}, InvalidOption, "device 'tpu' is none of"),
        ({"device": "gpu"}, InvalidOption, "device 'gpu' is none of .*; did you mean 'cuda'"),
        ({"exchange": "smoke"}, InvalidOption, "exchange 'smoke' is none of"),
        ({"exchange": "loopback"}, InvalidOption, "for 1 worker, and the graph has 2"),
        ({"structure": ["csr"]}, InvalidOption, r"structure \['csr'\] is no name"),
        ({"order": "hubs"}, InvalidOption, "order 'hubs' is neither"),
        ({"order": [0] * N}, InvalidOption, "no vertex has the internal id 1"),
        ({"balance": "edges"}, InvalidOption, "balance 'edges'"),
        ({"reserve": -1}, InvalidOption, "reserve is -1"),
        ({"reserve": 2**70}, InvalidOption, "reserve is 1180591620717411303424"),
        ({"reserve": "10GB"}, InvalidOption, "reserve is '10GB'"),
        ({"n_vertices": -1}, InvalidOption, "n_vertices is -1"),
        ({"n_vertices": MAX_VERTICES + 1}, CapacityError, f"32-bit ids allow at most {MAX_VERTICES}"),
    ],
)
def test_options(client, options, error, message):
    with pytest.raises(error, match=message):
        DynamicGraph(client, **{"n_vertices": N, **options})


def test_the_same_worker_twice(client, graph):
    with pytest.raises(InvalidOption, match="is named 2 times"):
        DynamicGraph(client, N, workers=[graph.workers[0]] * 2)


def test_gpus_and_ucx_where_there_are_none(client, graph):
    found = client.run(lambda: __import__("mgraph.device").device.gpu_count())
    if all(found.values()):
        pytest.skip("every worker has a GPU")
    with pytest.raises(DeviceError, match=re.escape("no GPU that CuPy can use: tcp://")):
        DynamicGraph(client, N, device="cuda")
    with pytest.raises(DeviceError, match="no UCXX"):
        DynamicGraph(client, N, exchange="ucx")
    mine = len(graph.workers) - 1  # this module's graph, where it is on the workers
    assert wait_for(lambda: sessions(client) == [mine] * 2), sessions(client)


def test_more_vertices_than_memory_on_the_workers(client):
    with pytest.raises(CapacityError, match="the worker's memory limit leaves"):
        DynamicGraph(client, MAX_VERTICES, weighted=True)


def test_more_vertices_than_the_id_type_holds(graph):
    with pytest.raises(CapacityError, match=f"n_vertices is {MAX_VERTICES + 1}"):
        graph.add_vertices(MAX_VERTICES + 1 - N)
    with pytest.raises(InvalidOption, match="n is -1"):
        graph.add_vertices(-1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.run("colour"), InvalidOption, "algorithm 'colour' is none of"),
        (lambda g: g.bfs(N), UnknownVertex, "source is 10; the graph has 10 vertices"),
        (lambda g: g.bfs(-1), UnknownVertex, "source is -1"),
        (lambda g: g.bfs(0.5), InvalidOption, "source is 0.5"),
        (lambda g: g.bfs(0, direction="up"), InvalidOption, 'direction \'up\' is neither "out" nor "in"'),
        (lambda g: g.bfs(0, direction="in"), InvalidOption, "create the graph with reverse=True"),
        (lambda g: g.bfs(0, direction=np.array(["out", "in"])), InvalidOption, "direction array"),
        (lambda g: g.run(["bfs"]), InvalidOption, r"algorithm \['bfs'\] is none of"),
        (lambda g: g.maintain(np.array(["bfs", "sssp"])), InvalidOption, "results of array.* cannot be maintained"),
        (lambda g: g.copy(structure=np.ones(2)), InvalidOption, "structure array.* is no name"),
        (lambda g: EdgeBatch([0], [1], keys=np.ones(2)), InvalidOption, "keys array"),
        (lambda g: g.degrees(np.True_), InvalidBatch, "ids is True, one value"),
        (lambda g: g.pagerank(alpha=1), InvalidOption, "alpha is 1"),
        (lambda g: g.pagerank(alpha="x"), InvalidOption, "alpha is 'x'"),
        (lambda g: g.pagerank(alpha=10**400), InvalidOption, "a number in the range of float64"),
        (lambda g: g.pagerank(start=np.ma.array([1, 2], mask=[0, 1])), InvalidOption, r"start\[1\] is masked"),
        (lambda g: g.pagerank(start=[[1], [2, 3]]), InvalidOption, "start: a list cannot be made an array"),
        (lambda g: g.pagerank(start=[1e308, 1e308]), InvalidOption, "start sums to inf"),
        (lambda g: g.pagerank(0.85, 1e-6, 100, np.float32), InvalidOption, "start is <class 'numpy.float32'>; numbers"),
        (lambda g: g.katz_centrality(beta=np.dtype("f4")), InvalidOption, r"beta is dtype\('float32'\); numbers"),
        (lambda g: g.gather(np.dtype("f4"), direction="out"), InvalidOption, "values has 0 numbers"),
        (lambda g: g.ego(np.float32), InvalidBatch, "<class 'numpy.float32'>; vertex ids are whole numbers"),
        (lambda g: g.pagerank(tol=None), InvalidOption, "tol is None"),
        (lambda g: g.degrees(direction="up"), InvalidOption, "direction 'up'"),
        (lambda g: g.neighbors([1], direction="in"), InvalidOption, "create the graph with reverse=True"),
        (lambda g: g.pagerank(tol=-1e-9), InvalidOption, "tol is -1e-09; it must be finite and 0 or more"),
        (lambda g: g.pagerank(tol=float("inf")), InvalidOption, "tol is inf"),
        (lambda g: g.pagerank(tol=float("nan")), InvalidOption, "tol is nan"),
        (lambda g: g.pagerank(max_iter=-1), InvalidOption, "max_iter is -1; it must be a whole number of 0 or more"),
        (lambda g: g.pagerank(max_iter=True), InvalidOption, "max_iter is True"),
        (lambda g: g.pagerank(alpha=0), InvalidOption, "alpha is 0"),
        (lambda g: g.pagerank(dtype="float16"), InvalidOption, "dtype is 'float16'; it must be float32 or float64"),
        (lambda g: g.pagerank(dtype=None), InvalidOption, "dtype is None"),
        (lambda g: g.pagerank(dtype=">f8"), InvalidOption, "dtype is '>f8'"),
        (lambda g: g.pagerank(dtype="double trouble"), InvalidOption, "dtype is 'double trouble'"),
        (lambda g: g.pagerank(max_iter=1.5), InvalidOption, "max_iter is 1.5"),
    ],
)
def test_algorithms(graph, call, error, message):
    with pytest.raises(error, match=message):
        call(graph)


def test_a_closed_graph(place):
    graph = DynamicGraph(place, N)
    graph.close()
    graph.close()
    for call in (
        lambda: graph.insert([0], [1]),
        lambda: graph.delete([0], [1]),
        lambda: graph.has_edges([0], [1]),
        lambda: graph.degrees(),
        lambda: graph.neighbors([0]),
        lambda: graph.to_csr(),
        lambda: graph.add_vertices(1),
        lambda: graph.delete_vertices([1]),
        lambda: graph.bfs(0),
        lambda: graph.pagerank(),
    ):
        with pytest.raises(GraphClosed, match=f"graph {graph.id} is closed .epoch 0."):
            call()


def test_handles_do_not_pickle(graph):
    for handle in (graph, graph.bfs(0), graph.maintain("bfs", source=0), graph.pipeline(), AsyncDynamicGraph(list)):
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                way(handle)


def test_clients_that_cannot_be_used(client):
    with pytest.raises(TypeError, match=r"takes a dask\.distributed\.Client, got str"):
        DynamicGraph("tcp://127.0.0.1:8786", N)
    other = Client(client.scheduler.address)
    other.close()
    with pytest.raises(InvalidOption, match="the Dask client is closed"):
        DynamicGraph(other, N)


def test_a_cluster_without_workers():
    with (
        LocalCluster(n_workers=0, **NO_DASHBOARD) as cluster,
        Client(cluster) as empty,
        pytest.raises(InvalidOption, match="the cluster has 0 workers"),
    ):
        DynamicGraph(empty, N)


def test_nothing_is_left_of_graphs_that_were_never_made(client, graph):
    graph.close()
    assert_clean(client)
