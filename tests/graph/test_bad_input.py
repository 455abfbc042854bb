"""Bad input raises a typed error that names the value and the limit, before anything changed."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import assert_clean, leftovers

from mgraph import (
    MAX_VERTICES,
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
def graph(client):
    with DynamicGraph(client, N) as graph:
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
        ([0.5], [1], InvalidBatch, r"src\[0\] is 0.5"),
        ([0], [float("nan")], InvalidBatch, r"dst\[0\] is nan"),
        ([0, 1], [1], InvalidBatch, r"has shape"),
        (["a"], [1], InvalidBatch, "dtype"),
        ([[0]], [[1]], InvalidBatch, "2 dimensions"),
        (1, 2, InvalidBatch, "src is int of 0 dimensions"),
        ({0}, {1}, InvalidBatch, "src is set of 0 dimensions"),
        ([[0], [1, 2]], [1], InvalidBatch, "list is no array: .*inhomogeneous"),
        ([2**40], [1], InvalidBatch, r"src\[0\] is 1099511627776"),
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


def test_weights(graph, client):
    with pytest.raises(InvalidBatch, match="create it with weighted=True"):
        graph.insert([0], [1], [2.0])
    with pytest.raises(InvalidBatch, match=r"weight\[0\] is NaN"):
        EdgeBatch([0], [1], [float("nan")])
    with pytest.raises(InvalidBatch, match=r"weight\[1\] is 1e\+39; weights are kept as float32, up to 3.4028235e\+38"):
        EdgeBatch([0, 1], [1, 2], [float("inf"), 1e39])


@pytest.mark.parametrize("op", [0, 2, True, 1.0, "delete"])
def test_one_op_that_is_none(op):
    with pytest.raises(InvalidBatch, match=f"op is {op!r}; ops are"):
        EdgeBatch([0], [1], op=op)


def test_masked_entries():
    masked = np.ma.array([0, 5], mask=[False, True])
    for columns in ((masked, [1, 2]), ([1, 2], masked), ([1, 2], [3, 4], masked), ([1, 2], [3, 4], None, masked)):
        with pytest.raises(InvalidBatch, match="entry 1 of a masked array is masked"):
            EdgeBatch(*columns)
    assert EdgeBatch(np.ma.array([0, 5]), [1, 2]).src.tolist() == [0, 5]


def test_a_batch_is_cut_by_slices_only():
    batch = EdgeBatch([0, 1, 2], [1, 2, 3])
    assert batch[1:].src.tolist() == [1, 2]
    for part in (0, [0, 1]):
        with pytest.raises(TypeError, match="cut by slices"):
            batch[part]
    with pytest.raises(TypeError, match="cut by slices"):
        list(batch)


def test_update_wants_a_batch(graph):
    with pytest.raises(TypeError, match="EdgeBatch, got tuple"):
        graph.update(([0], [1]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "list"}, InvalidOption, "structure 'list' is none of '"),
        ({"structure": None}, InvalidOption, "structure None is no name"),
        ({"structure": "gpma+:root_density=0.8"}, InvalidOption, "no option 'root_density', but 'leaf', 'fill'"),
        ({"workers": []}, InvalidOption, "workers is empty; a graph needs at least 1"),
        ({"workers": ["tcp://1.2.3.4:5"]}, InvalidOption, "'tcp://1.2.3.4:5' is not in the cluster"),
        ({"workers": "tcp://1.2.3.4:5"}, InvalidOption, "takes a list of addresses"),
        ({"device": "tpu"}, InvalidOption, "device 'tpu' is none of"),
        ({"exchange": "smoke"}, InvalidOption, "exchange 'smoke' is none of"),
        ({"exchange": "loopback"}, InvalidOption, "for 1 worker, and there are 2"),
        ({"structure": ["csr"]}, InvalidOption, r"structure \['csr'\] is no name"),
        ({"order": [[1], [2, 3]]}, InvalidOption, "order: list is no array"),
        ({"balance": np.ma.array([1, 2], mask=[0, 1])}, InvalidOption, "balance: entry 1 of a masked array"),
        ({"order": [0, 1]}, InvalidOption, r"order has shape \(2,\)"),
        ({"order": [0] * N}, InvalidOption, "no vertex has the internal id 1"),
        ({"order": list(range(1, N + 1))}, InvalidOption, r"order\[9\] is 10"),
        ({"balance": "edges"}, InvalidOption, "balance 'edges'"),
        ({"balance": [1.5] * N}, InvalidOption, "dtype float64"),
        ({"balance": [-1] * N}, InvalidOption, "a degree, 0 or more"),
        ({"reserve": -1}, InvalidOption, "reserve is -1"),
        ({"reserve": "10GB"}, InvalidOption, "reserve is '10GB'"),
        ({"n_vertices": -1}, InvalidOption, "n_vertices is -1"),
        ({"n_vertices": 1.5}, InvalidOption, "n_vertices is 1.5"),
        ({"n_vertices": True}, InvalidOption, "n_vertices is True"),
        ({"n_vertices": MAX_VERTICES + 1}, CapacityError, f"32-bit ids allow {MAX_VERTICES}"),
    ],
)
def test_options(client, options, error, message):
    with pytest.raises(error, match=message):
        DynamicGraph(client, **{"n_vertices": N, **options})


def test_the_same_worker_twice(client, graph):
    with pytest.raises(InvalidOption, match="is named 2 times"):
        DynamicGraph(client, N, workers=[graph.workers[0]] * 2)


def test_gpus_and_ucx_where_there_are_none(client):
    found = client.run(lambda: __import__("mgraph.device").device.gpu_count())
    if all(found.values()):
        pytest.skip("every worker has a GPU")
    with pytest.raises(DeviceError, match=re.escape("no GPU that CuPy can use: tcp://")):
        DynamicGraph(client, N, device="cuda")
    with pytest.raises(DeviceError, match="no UCXX"):
        DynamicGraph(client, N, exchange="ucx")
    assert [found["sessions"] for found in client.run(leftovers).values()] == [1, 1]  # this module's graph


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
        (lambda g: g.bfs(N), UnknownVertex, "source is 10; the graph has 10 vertices"),
        (lambda g: g.bfs(-1), UnknownVertex, "source is -1"),
        (lambda g: g.bfs(0.5), InvalidOption, "source is 0.5"),
        (lambda g: g.bfs(0, direction="up"), InvalidOption, 'direction \'up\' is neither "out" nor "in"'),
        (lambda g: g.bfs(0, direction="in"), InvalidOption, "create the graph with reverse=True"),
        (lambda g: g.pagerank(alpha=1), InvalidOption, "alpha is 1"),
        (lambda g: g.pagerank(alpha="x"), InvalidOption, "alpha is 'x'"),
        (lambda g: g.pagerank(alpha=10**400), InvalidOption, "a number that float64 holds"),
        (lambda g: g.pagerank(start=np.ma.array([1, 2], mask=[0, 1])), InvalidOption, "start: entry 1 of a masked"),
        (lambda g: g.pagerank(start=[[1], [2, 3]]), InvalidOption, "start: list is no array"),
        (lambda g: g.pagerank(start=[1e300, 1]), InvalidOption, "bad parts"),
        (lambda g: g.pagerank(tol=None), InvalidOption, "tol is None"),
        (lambda g: g.degrees(direction="up"), InvalidOption, "direction 'up'"),
        (lambda g: g.neighbors([1], direction="in"), InvalidOption, "create the graph with reverse=True"),
        (lambda g: g.pagerank(tol=0), InvalidOption, "tol is 0"),
        (lambda g: g.pagerank(tol=float("nan")), InvalidOption, "tol is nan"),
        (lambda g: g.pagerank(max_iter=0), InvalidOption, "max_iter is 0"),
        (lambda g: g.pagerank(max_iter=1.5), InvalidOption, "max_iter is 1.5"),
    ],
)
def test_algorithms(graph, call, error, message):
    with pytest.raises(error, match=message):
        call(graph)


def test_a_closed_graph(client):
    graph = DynamicGraph(client, N)
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
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(graph)


def test_clients_that_cannot_be_used(client):
    with pytest.raises(TypeError, match=r"takes a dask\.distributed\.Client, got str"):
        DynamicGraph("tcp://127.0.0.1:8786", N)
    other = Client(client.scheduler.address)
    other.close()
    with pytest.raises(InvalidOption, match="the Dask client is closed"):
        DynamicGraph(other, N)


def test_an_asynchronous_client(client):
    import asyncio

    async def use() -> None:
        async with Client(client.scheduler.address, asynchronous=True) as other:
            DynamicGraph(other, N)

    with pytest.raises(TypeError, match="synchronous client"):
        asyncio.run(use())


def test_a_cluster_without_workers():
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as empty,
        pytest.raises(InvalidOption, match="the cluster has 0 workers"),
    ):
        DynamicGraph(empty, N)


def test_nothing_is_left_of_graphs_that_were_never_made(client, graph):
    graph.close()
    assert_clean(client)
