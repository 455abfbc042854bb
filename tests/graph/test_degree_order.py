"""The order of the vertices by degree, through the user's handle: no call shows it."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graph_clusters import HERE, assert_clean, check_graph, on
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph
from mgraph.errors import CapacityError
from mgraph.sources.rmat import Rmat

N = 60


def hubs_first(graph: DynamicGraph) -> bool:
    """Whether degrees, out and in, fall with the internal ids of each range."""
    csr, numbering = graph.to_csr(), graph._directory.numbering
    degrees = np.diff(csr.offsets) + graph.directed * np.bincount(csr.dst, minlength=graph.num_vertices)
    inside = np.empty_like(degrees)
    inside[numbering.order] = degrees
    starts = numbering.partition.starts
    return all((np.diff(inside[a:b]) <= 0).all() for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize(
    "kind", [{}, {"directed": False, "weighted": True}, {"reverse": True, "structure": "csr"}], ids=str
)
@pytest.mark.parametrize("size", [HERE, 1, 2, 3])
def test_batches_reads_and_results_around_a_new_order(client3, kind, size):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    with DynamicGraph(n_vertices=N, order="degree", **on(client3, size), **kind) as graph:
        assert graph._directory.numbering.order is None
        for turn in range(3):
            before = graph.epoch
            batch = random_batch(rng, model.n_vertices, 300, model.weighted)
            graph.update(batch)
            model.update(batch)
            assert turn > 0 or hubs_first(graph)
            check_graph(graph, model, rng)
            found = graph.bfs(1, predecessors=True)
            distances, predecessors, ranks = found.to_numpy(), found.predecessors.to_numpy(), graph.pagerank()
            kept, top, fingerprint = ranks.to_numpy(), ranks.top(5), graph.fingerprint()
            graph.reorder()
            assert graph.fingerprint() == fingerprint
            assert hubs_first(graph)
            assert graph.epoch == before + 1  # an order takes none
            check_graph(graph, model, rng)
            np.testing.assert_array_equal(found.to_numpy(), distances)  # results of before, by users' ids
            np.testing.assert_array_equal(found.predecessors.to_numpy(), predecessors)
            np.testing.assert_array_equal(ranks.to_numpy(), kept)
            assert ranks.top(5) == top
            np.testing.assert_array_equal(graph.bfs(1).to_numpy(), distances)
            again = graph.pagerank(start=ranks)
            assert again.iterations <= 2
            assert np.abs(again.to_numpy() - kept).sum() < 1e-5
            graph.add_vertices(2)
            model.n_vertices += 2
            check_graph(graph, model, rng)
            graph.rebalance()
            check_graph(graph, model, rng)
    assert_clean(client3)


def test_ingest_into_an_empty_graph_is_ordered_and_even(client):
    with DynamicGraph(client, 1 << 12, order="degree") as graph, DynamicGraph(client, 1 << 12) as plain:
        for g in (graph, plain):
            g.insert([], [])
            assert g._directory.numbering.order is None
            g.ingest(Rmat(12, 10_000, shuffled=False), steps=2)
        assert hubs_first(graph)
        assert plain._directory.numbering.order is None
        assert graph.balance().ratio < 1.1 < plain.balance().ratio
        one, other = graph.to_csr(), plain.to_csr()
        np.testing.assert_array_equal(one.offsets, other.offsets)
        np.testing.assert_array_equal(one.dst, other.dst)
        order = graph._directory.numbering.order
        graph.insert([5], [6])
        assert graph._directory.numbering.order is order  # renewed on demand alone
    assert_clean(client)


def test_no_room_to_order_is_a_warning_and_the_batch_stays(place, monkeypatch):
    with DynamicGraph(place, N, order="degree") as graph:
        monkeypatch.setattr(graph._updates, "reorder", lambda: (_ for _ in ()).throw(CapacityError("rank 1: no room")))
        with pytest.warns(UserWarning, match="the batch is committed; no room .* rank 1: no room"):
            assert graph.insert([1], [2]).inserted == 1
        assert graph.has_edges([1], [2]).all()


def test_reads_of_other_threads_while_the_order_changes(place):
    rng = np.random.default_rng(2)
    with DynamicGraph(place, N, order="degree") as graph, ThreadPoolExecutor(3) as pool:
        src, dst = np.divmod(rng.choice(N * N, 600, replace=False), N)
        graph.insert(src, dst)
        degrees, distances = np.bincount(src, minlength=N), graph.bfs(3).to_numpy()

        def read(turn: int) -> bool:
            if turn % 4 == 0:
                graph.reorder() if turn % 8 else graph.rebalance()
            same = (graph.degrees() == degrees).all() and (graph.bfs(3).to_numpy() == distances).all()
            return bool(same and graph.has_edges(src, dst).all())

        assert all(pool.map(read, range(24)))


@pytest.mark.parametrize("first", ["degrees", "bfs", "pagerank", "insert"])
@pytest.mark.parametrize("call", ["reorder", "rebalance", "add_vertices"])
def test_a_move_that_an_interrupt_kept_from_being_known_here(place, call, first, monkeypatch):
    """Ctrl-C between the ranks' switch and the place's: whoever calls next finds out."""
    with DynamicGraph(place, N, order="degree") as graph:
        src, dst = np.arange(30) % 7, np.arange(30)
        graph.insert(src, dst)
        graph.insert(np.arange(30) % 9, np.arange(30, 60))
        before = graph.degrees()
        with monkeypatch.context() as patch:
            patch.setattr(graph._directory, "_catch_up", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                getattr(graph, call)(*([5] if call == "add_vertices" else []))
        n = N + 5 * (call == "add_vertices")
        if first == "insert":
            assert graph.insert([n - 3], [n - 2]).inserted == 1
            graph.delete([n - 3], [n - 2])
        elif first != "degrees":
            found = graph.run(first, **({"source": 3} if first == "bfs" else {}))
            assert len(found.to_numpy()) == len(found) == n
            assert len(found.top(n)) == n
        np.testing.assert_array_equal(graph.degrees(range(N)), before)
        assert graph.has_edges(src, dst).all()
        assert graph.bfs(3).to_numpy()[3] == 0
        assert graph.num_vertices == n
        assert len(graph.degrees()) == graph.num_vertices
        assert graph.insert([1], [N - 1]).inserted == 1
        assert graph.degrees([1]) == before[1] + 1
