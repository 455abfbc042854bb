"""Copies on GPUs: their kernels leave the GPU for batches of the graph, and their memory goes while kernels run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from graph_clusters import Clusters, assert_clean
from patience import patience
from plain_graph import fresh_rng
from test_copies import KINDS, NAMES, play

from mgraph import CapacityError, DynamicGraph, GraphClosed
from mgraph.device import Device
from mgraph.exchange import world
from mgraph.sources.rmat import Rmat
from workloads.scaling.algorithms import CASES, first_column

pytestmark = pytest.mark.timeout(600)
SCALE = 16


@pytest.fixture(
    params=[pytest.param(0, marks=pytest.mark.gpu), *(pytest.param(n, marks=pytest.mark.multigpu(n)) for n in (2, 4))]
)
def gpus(clusters: Clusters, request: pytest.FixtureRequest) -> Iterator[Client | None]:
    """This process, or workers with a GPU each."""
    if request.param:
        with clusters.lend(request.param, gpus=True) as client:
            yield client
            assert_clean(client)
    else:
        yield None
        assert_clean(None)


def filled(gpus: Client | None, device: str = "cuda", scale: int = SCALE, **options: Any) -> DynamicGraph:
    """An undirected graph with hubs."""
    graph = DynamicGraph(gpus, 1 << scale, device=device, directed=False, **options)
    graph.insert(*Rmat(scale, batch=8 << scale, seed=3)(0, 1, 0, Device("cpu"))[:2])
    return graph


def leave_at_once(stay: int = 0) -> None:
    """Let programs of copies leave at each meeting; runs in each process."""
    world.STAY_IN_BACKGROUND = stay


@contextmanager
def leaving_at_once(gpus: Client | None) -> Iterator[None]:
    stay, run = world.STAY_IN_BACKGROUND, (lambda f, *args: f(*args)) if gpus is None else gpus.run
    run(leave_at_once)
    try:
        yield
    finally:
        run(leave_at_once, stay)


@contextmanager
def analysed(copies: list[DynamicGraph]) -> Iterator[None]:
    """Long betweennesses run on copies in the block, and are ended after it."""
    ended = list[BaseException]()

    def analyse(h: DynamicGraph) -> None:
        try:
            h.betweenness_centrality()  # of all vertices: minutes
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=analyse, args=[h]) for h in copies]
    for thread in threads:
        thread.start()
    time.sleep(1)  # compiled before, so they run
    yield
    assert all(thread.is_alive() for thread in threads)
    for h in copies:
        h.close()
    for thread in threads:
        thread.join(patience(60))
    assert len(ended) == len(copies)
    assert all(isinstance(error, GraphClosed) for error in ended), ended


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_copies_over_a_random_stream(number):
    play({"device": "cuda"}, KINDS[number % len(KINDS)], NAMES[number], NAMES[number - 1], 4)


@pytest.mark.multigpu
@pytest.mark.parametrize("number", range(2))
def test_copies_on_two_gpus_over_a_random_stream(clusters: Clusters, number: int) -> None:
    with clusters.lend(2, gpus=True) as client:
        play({"client": client, "device": "cuda"}, KINDS[2 + number], ["gpma+", "hornet"][number], "csr", 4)
        assert_clean(client)


def test_programs_that_leave_at_each_meeting_have_the_same_results(gpus):
    with filled(None, "cpu", 12) as right, filled(gpus, scale=12) as g, leaving_at_once(gpus), g.copy() as h:
        for name, case in CASES.items():
            got, want = (first_column(case.call(graph, 1)) for graph in (h, right))
            if name == "Louvain":  # whose labels depend on the kind of machine
                got, want = (graph.modularity(graph.louvain()) for graph in (h, right))
                assert got == pytest.approx(want, abs=0.02), name
            elif got.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("n", [1, 2])
def test_batches_and_searches_get_through_while_copies_are_analysed(gpus, n):
    rng = fresh_rng()
    with filled(gpus) as g, ExitStack() as stack:
        copies = [stack.enter_context(g.copy()) for _ in range(n)]
        for h in copies:
            h.betweenness_centrality(k=2)
        batches = rng.integers(0, 1 << SCALE, (12, 2, 20_000))
        g.insert(*batches[0])  # compiled
        with analysed(copies):
            began = time.monotonic()
            for batch in batches[1:]:
                g.insert(*batch)
                g.delete(*batch)
            distances = g.bfs(1).to_numpy()
            assert time.monotonic() - began < patience(30)
        assert g.epoch == 24
        np.testing.assert_array_equal(g.bfs(1).to_numpy(), distances)


def test_a_copy_is_made_and_freed_while_another_one_is_analysed(gpus):
    with filled(gpus) as g, g.copy(structure="csr") as h:
        h.betweenness_centrality(k=2)
        with g.copy() as other:
            expected = other.bfs(1).to_numpy()
        with analysed([h]):
            for _ in range(10):
                with g.copy() as other:
                    np.testing.assert_array_equal(other.bfs(1).to_numpy(), expected)


def test_graphs_and_copies_run_programs_at_the_same_time(gpus):
    """From four threads, on the same GPUs: nobody waits for ever, and all results are right."""
    with filled(gpus) as g, filled(gpus) as other, g.copy() as h, other.copy() as k:
        want = {name: first_column(CASES[name].call(g, 1)) for name in ("BFS", "core numbers", "components")}

        def run(graph: DynamicGraph) -> None:
            for _ in range(20):
                for name, values in want.items():
                    np.testing.assert_array_equal(first_column(CASES[name].call(graph, 1)), values, err_msg=name)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(run, graph) for graph in (g, other, h, k)]:
                done.result(patience(200))


def free_bytes() -> int:
    """The free memory of each process's GPU, past what pools keep; runs in each."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    return int(cupy.cuda.runtime.memGetInfo()[0])


@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_copies_leave_no_memory(gpus, n):
    def free() -> int:
        return free_bytes() if gpus is None else min(gpus.run(free_bytes).values())

    def copies(n: int) -> None:
        for number in range(n):
            with g.copy(structure="csr" if number % 5 == 0 else None) as h:
                assert h.num_edges == g.num_edges
                if number % 3 == 0:
                    h.bfs(1)

    with filled(gpus, scale=18) as g:
        # Kernels that a thread compiles and loads meanwhile take memory, too, and so do other processes on the GPU, but
        # not again and again.
        copies(10)
        lost = []
        while len(lost) < 8 and (not lost or lost[-1] > g.nbytes / 2):
            before = free()
            copies(n)
            lost.append(before - free())
        assert lost[-1] <= g.nbytes / 2, f"{lost} bytes are less free, each after {n} copies"


@pytest.mark.gpu
def test_without_memory_no_copy_is_made(monkeypatch):
    """The memory is there, since other tests may need it, but the device says that it is not."""
    with filled(None, scale=20) as g:
        with g.copy() as h:
            expected = h.bfs(1).to_numpy()
        with monkeypatch.context() as patch:
            patch.setattr(Device, "memory_free", g.nbytes // 2)
            with pytest.raises(CapacityError, match=rf"are needed for a copy of graph {g.id}.*GPU 0 has \d+ left"):
                g.copy()
        assert g.insert([1], [2]).epoch == 2
        with g.copy() as h:
            assert h.num_edges == g.num_edges
            assert h.bfs(1).to_numpy().shape == expected.shape
