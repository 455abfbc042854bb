"""What it takes to go on from the last result: few edges are visited, or it is computed again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from live_results import IDS, assert_same, line
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.algorithm import ApplyResult
from mgraph.algorithms.centrality.pagerank import maintain
from mgraph.algorithms.paths.bfs import maintain as maintained_bfs
from mgraph.algorithms.paths.bfs.maintain import Distances
from mgraph.algorithms.paths.incremental_paths import incremental_paths
from mgraph.algorithms.paths.near_far import search
from mgraph.worker.results import maintained as results
from mgraph.worker.shard import change_log, cost


def test_few_edges_are_visited_for_few_changes(monkeypatch):
    monkeypatch.setattr(cost, "SHORT", 1e9)  # however long that takes
    rng, n, m = fresh_rng(), 100_000, 500_000
    src, dst = rng.integers(0, n, (2, m), dtype=IDS)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(src, dst)
        given = {"connected_components": {}, "bfs": {"source": 0}, "sssp": {"source": 0}, "triangles": {}}
        lives = [graph.maintain(name, **arguments) for name, arguments in given.items()]
        cheap: Counter[str] = Counter()
        for _ in range(20):
            gone, new = rng.integers(0, m, 5), rng.integers(0, n, (2, 5), dtype=IDS)
            op = np.repeat([1, -1], 5).astype(np.int8)
            graph.update(EdgeBatch(np.append(new[0], src[gone]), np.append(new[1], dst[gone]), op=op))
            for live in lives:
                live.result()
                cheap[live.name] += live.report.how != "recomputed" and live.report.edges < graph.num_edges / 100
                assert live.report.touched <= 10
        print(cheap)
        assert min(cheap.values()) >= 0.9 * 20
        for live in lives:
            assert_same(live, graph, given[live.name])


def test_the_report_says_what_was_done():
    with DynamicGraph(n_vertices=1000, directed=False, device="cpu") as graph:
        graph.insert(*line(1000))
        live = graph.maintain("bfs", source=0)
        assert (live.report.how, live.epoch) == ("recomputed", 1)
        first = live.result()
        assert (live.report.how, live.report.touched, live.report.edges) == ("unchanged", 0, 0)
        graph.delete([5], [500])  # which is not there
        live.result()
        assert (live.report.how, live.report.touched, live.epoch) == ("unchanged", 0, 2)
        graph.insert([0], [990])
        assert live.result()[990] == 1
        assert (live.report.how, live.report.touched) == ("incremental", 1)
        assert 0 < live.report.edges < 1998 and live.report.ms > 0
        graph.insert([7], [9])
        graph.delete([7], [9])
        live.result()
        assert (live.report.how, live.report.touched) == ("unchanged", 0)
        graph.reorder()
        assert live.result()[990] == 1 and live.report.how == "recomputed"
        assert first[990] == 990  # what was read earlier stays
        assert "bfs" in repr(live) and "recomputed" in repr(live)


def test_what_the_ring_has_lost_is_computed_again(monkeypatch):
    monkeypatch.setattr(change_log, "LEAST", 8)
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*line(12))
        live = graph.maintain("connected_components")
        graph.insert([20], [21])
        assert live.result().components == 60 - 11 - 1 and live.report.how == "incremental"
        graph.insert([30, 32, 34], [31, 33, 35])
        graph.insert([40, 42, 44], [41, 43, 45])
        assert live.result().components == 60 - 11 - 7 and live.report.how == "recomputed"


def test_components_that_are_joined_or_cut_are_updated():
    with DynamicGraph(n_vertices=200, directed=False, device="cpu") as graph:
        graph.insert(*line(100))
        graph.insert(*(ends + IDS(100) for ends in line(100)))
        live = graph.maintain("connected_components")
        graph.insert([50], [150])
        assert live.result().components == 1 and (live.report.how, live.report.edges) == ("incremental", 0)
        for how in ("recomputed", "incremental"):  # the first deletion makes the forest
            graph.insert([50], [150])
            assert live.result().components == 1
            graph.delete([50], [150])
            assert live.result().components == 2 and live.report.how == how
        graph.delete([95, 195], [96, 196])  # 4 vertices each
        assert live.result().components == 4 and live.report.how == "incremental"
        assert 0 < live.report.edges < 50
        graph.delete([20], [21])
        assert live.result().components == 5 and live.result()[30] == 21


def test_going_on_that_is_slow_is_left_out_for_some_time(monkeypatch):
    """Once, then twice and so on; not for batches of less than half the size."""
    monkeypatch.setattr(cost, "FEW", 0)
    monkeypatch.setattr(cost, "SHORT", -1e9)  # always
    monkeypatch.setattr(cost.CostModel, "_slow", lambda *args: True)
    pairs = np.arange(0, 40, 2)
    with DynamicGraph(n_vertices=2000, directed=False, device="cpu") as graph:
        live = graph.maintain("bfs", source=0)
        hows = []
        for number in range(10):
            graph.insert(pairs[:8] + 40 * number, pairs[:8] + 40 * number + 1)
            live.result()
            hows.append(live.report.how == "recomputed")
        assert hows == [False] + [True] + [False] + [True] * 2 + [False] + [True] * 4
        graph.insert([1000], [1001])
        assert live.result().levels == 2 and live.report.how == "unchanged"


def test_a_suspended_update_does_not_look_at_the_changed_edges(monkeypatch):
    monkeypatch.setattr(cost.CostModel, "most", lambda self, arcs, changed: 0)
    monkeypatch.delattr(results, "_changes")
    with DynamicGraph(n_vertices=50, directed=False, device="cpu") as graph:
        graph.insert(*line(50))
        given = {"connected_components": {}, "bfs": {"source": 0}, "triangles": {}}
        lives = [graph.maintain(name, **arguments) for name, arguments in given.items()]
        for change in (graph.delete, graph.insert):
            change([20, 3], [21, 3])
            for live in lives:
                assert_same(live, graph, given[live.name])
                assert (live.report.how, live.report.touched) == ("recomputed", 0)


def test_a_search_that_would_visit_too_much_does_not_begin(monkeypatch):
    """The rows of the vertices that are cut are counted before they are searched: a hub that loses its parent."""
    n, resumed = 4000, []
    monkeypatch.setattr(search.NearFarSearch, "resume", lambda self, sources, words: resumed.append(len(sources)))
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert([0, 0, 2], [1, 2, 1])
        graph.insert(np.ones(n - 4, IDS), np.arange(3, n - 1, dtype=IDS))
        for name in ("bfs", "sssp"):
            live = graph.maintain(name, source=0)
            graph.delete([0], [1])
            live.result()
            assert live.report.how == "recomputed" and not resumed
            np.testing.assert_array_equal(live.result().to_numpy(), getattr(graph, name)(0).to_numpy())
            live.close()
            graph.insert([0], [1])


def applied_to_bfs(monkeypatch, most):
    """Collect the outcomes of a BFS's updates, each of which may visit `most` edges."""
    applied, apply = list[ApplyResult](), Distances.apply_changes
    monkeypatch.setattr(cost.CostModel, "most", lambda self, arcs, changed: most)
    monkeypatch.setattr(Distances, "apply_changes", lambda *args: applied.append(apply(*args)) or applied[-1])
    return applied


@pytest.mark.parametrize(("fewest", "sample", "checked"), [(4096, 512, 95), (10**9, 512, 8), (10**9, 10**9, 125)])
def test_a_search_gives_up_once_some_suspects_tell_that_all_visit_too_much(fewest, sample, checked, monkeypatch):
    """Each of 4,000 vertices has the source and 1,000 others as neighbours, and loses the source.

    A sample of the changed arcs is looked at before an update is prepared, until it has visited 3/32 of the edges that
    the update may visit. Otherwise a 32nd of the suspects are checked, or of those of a sample.
    """
    monkeypatch.setattr(maintained_bfs, "FEWEST", fewest)
    n, side, applied = 5001, 4000, applied_to_bfs(monkeypatch, 10**6)
    hubs, others = np.arange(1, 1001, dtype=IDS), np.arange(1001, n, dtype=IDS)
    monkeypatch.setattr(incremental_paths, "SAMPLE", sample)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(np.zeros(side, IDS), others)
        graph.insert(np.repeat(others, len(hubs)), np.tile(hubs, side))
        live = graph.maintain("bfs", source=0)
        graph.delete(np.zeros(side - 1, IDS), others[1:])
        result = live.result()
        np.testing.assert_array_equal(result.to_numpy(), graph.bfs(0).to_numpy())
    assert live.report.how == "recomputed"
    (update,) = applied
    assert update.how == "gave up" and 0 < update.edges <= checked * (len(hubs) + 1)


def test_chains_are_cut_until_too_many_edges_are_visited(monkeypatch):
    """A hundred chains lose the source, and each step along them visits a few hundred edges."""
    chains, length = 100, 40
    applied = applied_to_bfs(monkeypatch, 4000)
    ends = np.arange(1, 1 + chains * length, dtype=IDS).reshape(chains, length)
    with DynamicGraph(n_vertices=1 + chains * length, directed=False, device="cpu") as graph:
        graph.insert(np.zeros(chains, IDS), ends[:, 0])
        graph.insert(ends[:, :-1].ravel(), ends[:, 1:].ravel())
        live = graph.maintain("bfs", source=0)
        graph.delete(np.zeros(chains, IDS), ends[:, 0])
        assert live.result().reached == 1 and live.report.how == "recomputed"
    (update,) = applied
    assert update.how == "gave up" and 2000 < update.edges <= 2000 + 2 * incremental_paths.CPU_STEPS * 4 * chains


def test_a_search_resumes_in_the_order_of_hops(monkeypatch):
    """Twenty edges each shorten the way to all vertices behind them: each of these is searched from once."""
    n = 2001
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(*line(n))
        live = graph.maintain("bfs", source=0)
        first = np.arange(0, n - 1, 100, dtype=IDS)
        graph.insert(first, first + IDS(50))
        assert live.result()[n - 1] == n - 1 - 20 * 49
        assert live.report.how == "incremental" and n < live.report.edges <= 2 * graph.num_edges + 100


def test_a_search_that_is_computed_anew_keeps_no_more_than_its_columns():
    """Until changes come, and also where vertices leave meanwhile."""
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert([1, 2, 3, 5, 7], [2, 3, 4, 6, 8])
        graph.delete([5], [6])
        live = graph.maintain("bfs", source=3, predecessors=True)
        assert graph.drop_isolated() == 2
        assert live.report.how == "recomputed"
        assert live.result().to_series().to_dict() == {1: 2, 2: 1, 3: 0, 4: 1, 7: -1, 8: -1}
        assert live.report.how == "incremental"
        graph.insert([4, 9], [9, 8])
        assert live.result().to_series().to_dict() == {1: 2, 2: 1, 3: 0, 4: 1, 7: 4, 8: 3, 9: 2}
        assert live.report.how == "incremental"


def ranks_after(batches, most, monkeypatch):
    """Read PageRank after batches of so many edges, of which an update may visit `most`.

    Returns for each read how many pushes were prepared, and for each push its allowance, what it visited and its needs.
    """
    rng, n, prepared, pushed = fresh_rng(), 3000, [0], []
    make, apply = maintain.ForwardPush, maintain.ForwardPush.apply_changes

    def counted(*args):
        prepared[-1] += 1
        return make(*args)

    def noted(push, changes, most, *more):
        done = apply(push, changes, most, *more)
        pushed.append((most, push.edges, push.needs, done))
        return done

    monkeypatch.setattr(maintain, "ForwardPush", counted)
    monkeypatch.setattr(make, "apply_changes", noted)
    monkeypatch.setattr(cost.CostModel, "most", lambda self, arcs, changed: most)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, n, (2, 8 * n)))
        live = graph.maintain("pagerank")
        for size in batches:
            prepared.append(0)
            graph.insert(*rng.integers(0, n, (2, size)))
            result = live.result()
            assert live.report.how == "incremental"
            np.testing.assert_allclose(result.to_numpy(), graph.pagerank().to_numpy(), atol=1e-5)
    return prepared[1:], pushed


def test_ranks_are_not_pushed_from_vertices_of_too_many_edges(monkeypatch):
    """Nor is that prepared again, until batches are much smaller."""
    monkeypatch.setattr(maintain, "LONGER", 10)  # however long the read iterates
    prepared, pushed = ranks_after([2000] * 6 + [50] * 2, 50_000, monkeypatch)
    assert pushed[0][1] == 0 < pushed[0][0] < pushed[0][2]
    assert prepared[:6] == [0] * 6 and prepared[6] == 1
    assert len(pushed) == 2


def test_ranks_are_not_pushed_on_if_the_error_falls_too_slowly(monkeypatch):
    """Two errors tell how many edges it will take; with a larger allowance the same push ends."""
    monkeypatch.setattr(maintain, "DEARER", 0.01)  # however fast iterations are
    (most, visited, needs, done), *more = ranks_after([100] * 3, 400_000, monkeypatch)[1]
    assert not done and visited < most / 2 and needs > most and not more
    monkeypatch.undo()
    monkeypatch.setattr(maintain, "DEARER", 0.01)
    (most, visited, _, done) = ranks_after([100], 2 * 10**7, monkeypatch)[1][0]
    assert done and needs <= visited < most


def test_ranks_are_not_pushed_if_iterations_from_the_last_ones_take_less(monkeypatch):
    """A push of 100 edges would end within this allowance, but few iterations suffice."""
    prepared, pushed = ranks_after([100] * 5, 2 * 10**7, monkeypatch)
    ((most, _, needs, done),) = pushed
    assert not done and needs > most and not any(prepared)


def test_a_read_that_has_iterated_for_long_does_not_prepare_to_push(monkeypatch):
    monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most: True)
    monkeypatch.setattr(maintain, "LONGER", 1)
    assert ranks_after([500] * 2, 50_000, monkeypatch)[0] == [0, 0]
    monkeypatch.undo()
    monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most: True)
    monkeypatch.setattr(maintain, "LONGER", 10)
    assert ranks_after([500] * 2, 50_000, monkeypatch)[0] == [1, 1]


def test_ranks_begin_anew_where_the_last_ones_took_more_iterations(monkeypatch):
    """In place, and without a push; much smaller batches go on from the last ranks. Later it is tried again."""
    rng, n, prepared = fresh_rng(), 3000, []
    monkeypatch.setattr(maintain, "FADE", 0.5)
    monkeypatch.setattr(cost.CostModel, "most", lambda self, arcs, changed: 0)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, n, (2, 8 * n)))
        live = graph.maintain("pagerank")
        live.result()
        monkeypatch.setattr(maintain, "ForwardPush", lambda *args: prepared.append(1))
        (ranks,) = (state.result for state in graph._directory.coordinator._session.calls.shard.maintained.values())
        ranks.again, ranks.many = 2 * ranks.fresh, 200
        how = []
        for size in (200, 200, 20, 200):
            graph.insert(*rng.integers(0, n, (2, size)))
            np.testing.assert_allclose(live.result().to_numpy(), graph.pagerank().to_numpy(), atol=1e-5)
            how.append(live.report.how)
        assert how == ["recomputed", "recomputed", "incremental", "incremental"] and not prepared


def test_pagerank_whose_updates_are_suspended_iterates_from_its_last_ranks(monkeypatch):
    """It neither begins anew nor looks for closer ranks: fewer iterations than a fresh run."""
    rng, n, closer = fresh_rng(), 3000, []
    make = maintain.ForwardPush
    monkeypatch.setattr(maintain, "ForwardPush", lambda *args: closer.append(1) or make(*args))
    monkeypatch.setattr(cost.CostModel, "most", lambda self, arcs, changed: 0)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, n, (2, 8 * n)))
        live = graph.maintain("pagerank")
        for _ in range(4):
            graph.insert(*rng.integers(0, n, (2, 20)))
            result, fresh = live.result(), graph.pagerank()
            assert live.report.how == "incremental"
            arcs = 2 * graph.num_edges
            assert live.report.edges <= result.info["iterations"] * arcs < fresh.info["iterations"] * arcs
            np.testing.assert_allclose(result.to_numpy(), fresh.to_numpy(), atol=1e-5)
        assert 1 <= len(closer) <= 2  # of the first computation, which may be repeated
