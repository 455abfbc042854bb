"""Every algorithm on several GPUs against the CPU: programs of all ranks, which map each other's memory or do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from graph_clusters import Clusters
from patience import patience

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.exchange.ucxx_api import ucx_installed
from mgraph.sources.rmat import Rmat
from workloads.scaling.algorithms import CASES, MAINTAINED, first_column

pytestmark = pytest.mark.timeout(600)
needs_ucx = pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")

#: a small graph first: programs of the larger one need larger regions
SCALES = (8, 15)


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.multigpu(n)) for n in (2, 4, 8)])
def client(clusters: Clusters, request: pytest.FixtureRequest) -> Iterator[Client]:
    with clusters.lend(request.param, gpus=True) as client:
        yield client


def edges(scale: int) -> Any:
    """A graph with hubs, and a path at its end."""
    src, dst = Rmat(scale, batch=8 << scale, seed=scale)(0, 1, 0, Device("cpu"))[:2]
    path = np.arange((1 << scale) - 200, (1 << scale) - 1)
    return np.concatenate([src, path]), np.concatenate([dst, path + 1])


def graphs(client: Client | None, **options: Any) -> list[DynamicGraph]:
    made = [DynamicGraph(client, 1 << scale, directed=False, **options) for scale in SCALES]
    for graph, scale in zip(made, SCALES, strict=True):
        graph.insert(*edges(scale))
    return made


@pytest.fixture(scope="module")
def right() -> Iterator[list[DynamicGraph]]:
    made = graphs(None, device="cpu")
    yield made
    for graph in made:
        graph.close()


#: by "peer" a launch runs a program, by "tcp" it ends at each meeting of all ranks
EVERY = list(product(["peer", "tcp"], CASES))


@pytest.fixture(scope="module")
def on_gpus(client: Client, request: pytest.FixtureRequest) -> Iterator[list[DynamicGraph]]:
    made = graphs(client, device="cuda", exchange=request.param)
    assert made[0].exchange == request.param
    yield made
    for graph in made:
        graph.close()


@pytest.mark.parametrize(("on_gpus", "name"), EVERY, indirect=["on_gpus"])
def test_as_on_the_cpu(on_gpus: list[DynamicGraph], right: list[DynamicGraph], name: str) -> None:
    compare(on_gpus, right, name)


def compare(graphs: list[DynamicGraph], right: list[DynamicGraph], name: str) -> None:
    for ours, theirs in zip(graphs, right, strict=True):
        for root in (1, ours.num_vertices - 1) if CASES[name].searches else (0,):
            got, want = (first_column(CASES[name].call(graph, root)) for graph in (ours, theirs))
            if name == "Louvain":  # whose labels depend on the kind of machine
                got, want = (graph.modularity(graph.louvain()) for graph in (ours, theirs))
                assert got == pytest.approx(want, abs=0.02)
            elif got.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
            else:
                np.testing.assert_array_equal(got, want)


# ---- GPUs as if they were on two hosts ------------------------------------------------------------------------------


def as_separate_hosts(client: Client, network: str) -> str:
    """The exchange of two hosts, each with half of the workers: peer+tcp:0,0,1,1."""
    size = len(client.scheduler_info(n_workers=-1)["workers"])
    return f"peer+{network}:{','.join(str(2 * rank // size) for rank in range(size))}"


@pytest.fixture(scope="module", params=["tcp", pytest.param("ucx", marks=needs_ucx)])
def apart(client: Client, request: pytest.FixtureRequest) -> Iterator[list[DynamicGraph]]:
    exchange = as_separate_hosts(client, request.param)
    made = graphs(client, device="cuda", exchange=exchange)
    assert made[0].exchange == exchange
    yield made
    for graph in made:
        graph.close()


@pytest.mark.parametrize(
    "name",
    [
        "BFS", "BFS, predecessors", "shortest paths", "distances, 64", "components", "strong components",
        "core numbers", "label propagation, 10 rounds", "PageRank", "betweenness, 4 sources", "Louvain",
        "triangles",
    ],
)  # fmt: skip
def test_gpus_as_separate_hosts(apart: list[DynamicGraph], right: list[DynamicGraph], name: str) -> None:
    compare(apart, right, name)


@pytest.mark.parametrize("network", ["tcp", pytest.param("ucx", marks=needs_ucx)])
def test_batches_and_cargo_of_gpus_as_separate_hosts(client: Client, network: str) -> None:
    """Shares of the larger graph do not fit behind the words of a meeting: they go from GPU to GPU."""
    rng, n = np.random.default_rng(11), 1 << 17
    kind: dict[str, Any] = {"directed": False, "device": "cuda", "exchange": as_separate_hosts(client, network)}
    with DynamicGraph(client, n, **kind) as graph, DynamicGraph(n_vertices=n, device="cpu", directed=False) as oracle:
        for _ in range(3):
            batch = rng.integers(0, n, (2, 200_000))
            for g in (graph, oracle):
                g.insert(*batch)
                g.delete(*batch[:, :50_000])
            assert graph.num_edges == oracle.num_edges
            np.testing.assert_array_equal(graph.bfs(0).to_numpy(), oracle.bfs(0).to_numpy())
            np.testing.assert_allclose(graph.pagerank().to_numpy(), oracle.pagerank().to_numpy(), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("name", MAINTAINED.values())
def test_maintained_results(client: Client, name: str) -> None:
    rng = np.random.default_rng(5)
    with DynamicGraph(client, 1 << 12, device="cuda", directed=False) as graph, graph.maintain(name) as live:
        graph.insert(*edges(12))
        for _ in range(4):
            batch = rng.integers(0, graph.num_vertices, (2, 300))
            graph.insert(*batch)
            np.testing.assert_allclose(
                live.result().to_numpy(), getattr(graph, name)().to_numpy(), rtol=1e-3, atol=1e-6
            )
            graph.delete(*batch[:, :150])


# ---- programs that write arrays in bulk ------------------------------------------------------------------------------

BULK: list[tuple[str, dict[str, Any]]] = [
    ("pagerank", {}),
    ("pagerank", {"tol": 0, "max_iter": 300}),  # more than the steps of a run
    ("pagerank", {"dtype": "float64", "tol": 1e-9}),
    ("pagerank", {"weight": True}),
    ("pagerank", {"personalization": {3: 1.0, 77: 2.0}, "dangling": "uniform"}),
    ("pagerank", {"start": np.arange(1, 200), "dangling": "drop"}),
    ("label_propagation", {"max_iter": 10}),
]


def check_bits(client: Client, device: str, exchange: str, structure: str) -> None:
    """Compare with one GPU: bit for bit where a row's sum does not depend on its place."""
    kind: dict[str, Any] = {"device": device, "structure": structure, "directed": False, "weighted": True}
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    for scale in SCALES:
        src, dst = edges(scale)
        weight = np.random.default_rng(scale).integers(1, 9, len(src)).astype(np.float32)
        with (
            DynamicGraph(client, 1 << scale, exchange=exchange, **kind) as graph,
            DynamicGraph(client, 1 << scale, workers=workers[:1], **kind) as alone,
        ):
            assert graph.exchange == exchange
            for one in (graph, alone):
                one.insert(src, dst, weight)
            for name, options in BULK:
                result, want = (getattr(one, name)(**options) for one in (graph, alone))
                if structure == "csr" or name == "label_propagation":
                    np.testing.assert_array_equal(result.to_numpy(), want.to_numpy())
                    assert result.iterations == want.iterations
                else:
                    np.testing.assert_allclose(result.to_numpy(), want.to_numpy(), rtol=1e-4)
            walks, want = (one.random_walks(np.arange(1 << scale), 20, seed=1) for one in (graph, alone))
            np.testing.assert_array_equal(walks, want)
        # A directed graph without in-edges pushes, if it makes few iterations.
        kind_pushed: dict[str, Any] = {**kind, "directed": True}
        with (
            DynamicGraph(client, 1 << scale, exchange=exchange, **kind_pushed) as graph,
            DynamicGraph(client, 1 << scale, workers=workers[:1], **kind_pushed) as alone,
        ):
            for one in (graph, alone):
                one.insert(src, dst, weight)
            for dtype in ("float32", "float64"):
                result, want = (one.pagerank(tol=0, max_iter=5, dtype=dtype).to_numpy() for one in (graph, alone))
                np.testing.assert_allclose(result, want, rtol=1e-6)


@pytest.mark.parametrize("structure", ["csr", "gpma+"])
@pytest.mark.parametrize("exchange", ["peer", "tcp"])
def test_bulk_programs_give_the_bits_of_one_gpu(client: Client, exchange: str, structure: str) -> None:
    check_bits(client, "cuda", exchange, structure)


# ---- two graphs on the same GPUs -------------------------------------------------------------------------------------


def test_short_programs_do_not_wait_for_the_end_of_long_ones(client: Client) -> None:
    kind: dict[str, Any] = {"directed": False, "device": "cuda", "exchange": "peer"}
    with DynamicGraph(client, 1 << 22, **kind) as long, DynamicGraph(client, 1 << 15, **kind) as short:
        long.insert(*edges(22))
        short.insert(*edges(15))
        distances, times, ends = short.bfs(1).to_numpy(), list[float](), threading.Event()
        ranks = long.pagerank(tol=0, max_iter=2000).to_numpy()

        def analyse() -> int:
            for n in count(1):
                np.testing.assert_allclose(long.pagerank(tol=0, max_iter=2000).to_numpy(), ranks, rtol=1e-5)
                if ends.is_set():
                    return n
            raise AssertionError("it counts for ever")

        with ThreadPoolExecutor(1) as pool:
            analyses = pool.submit(analyse)
            for _ in range(50):
                time.sleep(0.01)
                began = time.monotonic()
                found = short.bfs(1)
                times.append(time.monotonic() - began)
                np.testing.assert_array_equal(found.to_numpy(), distances)
            assert not analyses.done()
            ends.set()
            n = analyses.result(patience(60))
        print(f"{n} long programs; a search took {np.median(times):.4f} s, at most {max(times):.4f} s")
        assert np.median(times) < patience(0.06)


def test_long_programs_of_two_graphs_take_turns(client: Client) -> None:
    kind: dict[str, Any] = {"directed": False, "device": "cuda", "exchange": "peer"}
    with DynamicGraph(client, 1 << 22, **kind) as graph, DynamicGraph(client, 1 << 22, **kind) as other:
        batch = edges(22)
        for g in (graph, other):
            g.insert(*batch)
        calls = [
            lambda g: g.pagerank(tol=0, max_iter=1000),
            lambda g: g.core_number(),
            lambda g: g.label_propagation(max_iter=10),
        ]
        want = [first_column(call(graph)) for call in calls]

        def run(g: DynamicGraph) -> float:
            began = time.monotonic()
            for call, values in zip(calls, want, strict=True):
                np.testing.assert_allclose(first_column(call(g)), values, rtol=1e-5)
            return time.monotonic() - began

        alone = run(graph)
        with ThreadPoolExecutor(2) as pool:
            took = [done.result(patience(200)) for done in [pool.submit(run, g) for g in (graph, other)]]
        print(f"the calls took {alone:.3f} s alone, {took} beside each other")
