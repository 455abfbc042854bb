"""Maintained communities: their quality, their names against a slow model, and the same on any ranks and structures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from community_names import Event, NamesModel, parts
from graph_clusters import HERE, assert_clean, on
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.communities.dynamic import Names, communities
from mgraph.client.results.maintained import Live
from mgraph.errors import CapacityError, InvalidOption
from mgraph.structures import names

KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"directed": False},
    "weighted": {"directed": False, "weighted": True},
    "with in-edges": {"reverse": True, "weighted": True},
}
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("leiden", {}),
    ("louvain", {"resolution": 1.5, "seed": 3}),
    ("leiden", {"quality": "cpm", "resolution": 0.1}),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Communities are rarely computed anew."""
    monkeypatch.setattr(communities, "FIRST", communities.MOST)
    monkeypatch.setattr(communities, "LEAST", communities.MOST)


def networkx_of(model: GraphModel, n: int) -> nx.Graph:
    oracle = nx.DiGraph() if model.directed else nx.Graph()
    oracle.add_nodes_from(range(n))
    oracle.add_weighted_edges_from((u, v, w) for (u, v), w in model.edges.items())
    return oracle


def check(live: Live, model: GraphModel, n: int, arguments: dict[str, Any]) -> np.ndarray:
    """Return the labels. Communities are connected and named by their least vertices, and the quality is theirs."""
    result = live.result()
    labels = result.to_numpy()
    oracle, groups = networkx_of(model, n), parts(labels)
    assert all(labels[min(group)] == min(group) for group in groups)
    assert result.communities == len(groups)
    positive = nx.Graph((u, v) for (u, v), w in model.edges.items() if w > 0)
    positive.add_nodes_from(range(n))
    for group in groups:
        assert nx.is_connected(positive.subgraph(group)), sorted(group)
    if arguments.get("quality") == "cpm":
        weight = sum(w for (u, v), w in model.edges.items() if labels[u] == labels[v])
        pairs = sum(len(group) * (len(group) - 1) for group in groups) / (1 if model.directed else 2)
        assert result.quality == pytest.approx(weight - arguments["resolution"] * pairs, rel=1e-6, abs=1e-4)
    elif oracle.size("weight"):
        want = nx.community.modularity(oracle, groups, resolution=arguments.get("resolution", 1))
        assert next(iter(result.info.values())) == pytest.approx(want, abs=1e-6)
    return labels


def events_since(live: Live, epoch: int) -> list[Event]:
    """The events at the reads after `epoch`, as the model has them."""
    columns = ("event", "name", "other", "before", "after")
    return [tuple(row[name] for name in columns) for row in live.changes(epoch).communities.to_pylist()]


def fuzz(
    place: Any, kind: dict[str, Any], method: tuple[str, dict[str, Any]], rounds: int, n: int, other: dict[str, Any]
) -> Counter[str]:
    """Random changes of two graphs, of which one has other ranks or another structure, and is rebalanced and reordered.

    Both are read at the same times.
    """
    rng, hows, name = fresh_rng(), Counter[str](), method[0]
    options = {"device": "cpu", **kind}
    with DynamicGraph(None, n, **options) as graph, DynamicGraph(place, n, **options, **other) as twin:
        model, names = GraphModel(n, kind.get("directed", True), kind.get("weighted", False)), NamesModel()
        first = random_batch(rng, n, 3 * n, model.weighted, deletes=0)
        model.update(first)
        for each in (graph, twin):
            each.update(first)
        live, twins = graph.maintain(name, **method[1]), twin.maintain(name, **method[1])
        names.read(parts(check(live, model, n, method[1])))
        for _ in range(rounds):
            batch = random_batch(rng, n, int(rng.choice([1, 3, 10])), model.weighted, deletes=0.3)
            gone = [pair for pair in model.edges if rng.random() < 3 / (1 + len(model.edges))]
            for pairs, op in (((batch.src, batch.dst), batch.op), (np.array(gone).reshape(-1, 2).T, None)):
                src, dst = (np.asarray(column, np.uint32) for column in pairs)
                op = -np.ones(len(src), np.int8) if op is None else op
                weight = np.zeros(len(src), np.float32) if op is not batch.op else batch.weight
                part = EdgeBatch(src, dst, weight if model.weighted else None, op)
                model.update(part)
                for each in (graph, twin):
                    each.update(part)
            if rng.random() < 0.1:
                for each in (graph, twin):
                    each.add_vertices(2)
            if rng.random() < 0.3:
                twin.rebalance() if rng.random() < 0.5 else twin.reorder()
            if rng.random() < 0.6:
                before = live.epoch
                labels = check(live, model, graph.num_vertices, method[1])
                hows[live.report.how] += 1
                np.testing.assert_array_equal(twins.result().to_numpy(), labels)
                np.testing.assert_array_equal(twins.names().to_numpy(), live.names().to_numpy())
                assert events_since(live, before) == names.read(parts(labels))
                assert live.names().to_numpy().tolist() == [names.names[v] for v in range(len(labels))]
                assert events_since(twins, before) == events_since(live, before)
                assert twins.report.how == live.report.how and twins.report.moved == live.report.moved
                assert twins.report.touched == live.report.touched
    print(hows)
    return hows


@pytest.mark.parametrize("method", METHODS, ids=["leiden", "louvain", "cpm"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_random_streams(patient, kind, method):
    assert fuzz(None, kind, method, 10, 80, {"structure": "slabgraph"})["incremental"]


@pytest.mark.parametrize("kind", ["weighted", pytest.param("with in-edges", marks=pytest.mark.slow)])
def test_two_workers_change_no_name(client, kind):
    fuzz(client, KINDS[kind], METHODS[0], 8, 80, {})
    assert_clean(client)


@pytest.mark.parametrize("size", [HERE, 2])
def test_an_order_since_the_last_read_changes_no_name(client, size):
    """Nor does the removal of vertices after it. No edge has changed since the read."""
    src, dst = fresh_rng().integers(0, 60, (2, 70))
    results = []
    for reorders in (False, True):
        with DynamicGraph(**on(client, size), keys="int64", directed=False) as graph:
            graph.insert(src, dst)
            graph.delete(src[::3], dst[::3])
            live, reads = graph.maintain("leiden"), []
            for removes in (False, True):
                reads += [live.result().to_numpy(), live.names().to_numpy()]
                if reorders:
                    graph.reorder()
                assert not removes or graph.drop_isolated() > 0
                result = live.result()
                reads += [result.to_numpy(), live.names().to_numpy(), result.info]
            results.append(reads)
    np.testing.assert_equal(results[1], results[0])


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow), 12])
def test_small_graphs(n):
    for kind in KINDS.values():
        fuzz(None, kind, METHODS[0], 8, n, {})


def test_other_ids_without_a_change_of_edges():
    """Communities and names stay where vertices have other internal ids, and new ones are alone."""
    rng, n = fresh_rng(), 60
    with DynamicGraph(None, n, directed=False) as graph:
        graph.insert(*rng.integers(0, n, (2, 150)))
        live = graph.maintain("leiden")
        labels, called = live.result().to_numpy(), live.names().to_numpy()
        for change in (graph.reorder, lambda: graph.add_vertices(3), graph.reorder):
            change()
            live.result().close()  # it is asked for again
            np.testing.assert_array_equal(live.result().to_numpy()[:n], labels)
            np.testing.assert_array_equal(live.names().to_numpy()[:n], called)
        assert live.result().to_numpy()[n:].tolist() == [n, n + 1, n + 2]
        graph.insert([0], [n])
        assert live.result().to_numpy()[n] == labels[0]


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_other_magnitudes(directed):
    """Sums of the old unit would wrap, some of them to numbers that look exact."""
    with DynamicGraph(None, 6, directed=directed, reverse=directed, weighted=True) as graph:
        graph.insert([0, 1, 2], [1, 2, 3], [1, 1, 1])
        live = [graph.maintain(name) for name in ("leiden", "louvain")]
        for weight in (30, 48, 63, 96, 100, 1e6, 1e20, 3e38, 1e-30):
            for changed in (weight, 1):
                graph.insert([1], [2], [changed])
                for each in live:
                    result, fresh = each.result(), graph.run(each.name)
                    scalar = next(iter(result.info))
                    assert result.info[scalar] == pytest.approx(graph.modularity(result), abs=1e-12)
                    assert result.info[scalar] == pytest.approx(fresh.info[scalar], abs=0.05)


def payments(rng: np.random.Generator, step: int, n: int = 40) -> tuple[np.ndarray, ...]:
    """Edges among accounts of a few groups that come and go with time."""
    src = 10 * step + rng.integers(0, 300, n)
    dst = np.where(rng.random(n) < 0.8, src + 8 * rng.integers(1, 5, n), 10 * step + rng.integers(0, 300, n))
    return src, dst, rng.random(n).astype(np.float32) + 0.5, 100 * step + np.sort(rng.integers(0, 100, n))


@pytest.mark.parametrize("size", [HERE, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["leiden", pytest.param("louvain", marks=pytest.mark.slow)])
def test_names_while_accounts_leave(request, patient, name, size):
    """Edges expire, and accounts without edges leave; those that come back are new. Events and moves are by key."""
    rng, kinds, model = fresh_rng(), Counter[str](), NamesModel()
    place = on(None if size == HERE else request.getfixturevalue("client3"), size)
    steps, wanted = 24 if size == HERE and name == "leiden" else 45, {"born", "died", "grown", "shrunk"}
    options: dict[str, Any] = {"keys": "int64", "window": 70 * steps, "drop_isolated": True, "directed": False}
    with DynamicGraph(**place, **options, weighted=True) as graph:
        live = before = None
        for step in range(4 * steps):
            if step >= steps and wanted <= set(kinds):
                break
            graph.insert(*payments(rng, step))
            keys = graph.vertices().tolist()
            if model.members is not None:
                model.keep(keys)
            if rng.random() < 0.5:
                continue
            live = live or graph.maintain(name)
            labels, last = live.result().to_numpy(), dict(model.names)
            groups = [frozenset(keys[v] for v in part) for part in parts(labels)]
            present = set().union(*(model.members or {}).values())
            want, place = model.read(groups, keys.index), live.epoch
            assert live.names().to_series().to_dict() == model.names
            if before is not None:
                assert events_since(live, before) == want
                kinds.update(event[0] for event in want)
                was = {key: last[key] for key in keys if key in present}
                moves = [(row["vertex"], row["from"], row["to"]) for row in live.changes(before).vertices.to_pylist()]
                assert sorted(moves) == sorted(
                    (key, was.get(key), name) for key, name in model.names.items() if was.get(key) != name
                )
            before = place
    print(kinds)
    assert wanted <= set(kinds)


def test_a_window_on_two_workers_changes_no_name(client):
    rng = fresh_rng()
    options: dict[str, Any] = {"keys": "int64", "window": 500, "drop_isolated": True, "reverse": True}
    with DynamicGraph(**options) as graph, DynamicGraph(client, **options) as twin:
        lives = []
        for step in range(9):
            src, dst, _, time = payments(rng, step)
            for each in (graph, twin):
                each.insert(src, dst, time=time)
            lives = lives or [each.maintain("leiden") for each in (graph, twin)]
            if step % 3 == 2:
                got = [live.names().to_series().to_dict() for live in lives]
                assert got[0] == got[1]
                assert lives[0].result().to_series().to_dict() == lives[1].result().to_series().to_dict()
    assert_clean(client)


def test_an_arc_that_two_owners_changed(client):
    """Between two reads the rows of the arcs move to another worker, and its changes are netted all the same."""
    src = np.repeat(np.arange(8), 8)
    dst, weight = 8 + np.tile(np.arange(8), 8), np.arange(1, 65)
    with DynamicGraph(client, 64, reverse=True, weighted=True) as graph:
        graph.insert(dst, src, weight)
        live = graph.maintain("leiden")
        graph.insert([12, 13], [5, 6], [70, 71])
        graph.rebalance()
        graph.insert([12, 14], [5, 7], [weight[5 * 8 + 4], 72])
        live.result()
        assert live.report.touched == 2
    assert_clean(client)


def test_the_history(patient):
    with DynamicGraph(None, 6, directed=False) as graph:
        graph.insert([0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3])
        live = graph.maintain("leiden", history=2)
        first = live.epoch
        assert live.changes(first).communities.num_rows == live.changes(first).vertices.num_rows == 0
        epochs = [first]
        for u in (0, 1, 2):  # it leaves the triangle, or comes back
            graph.delete([0], [1]) if u % 2 == 0 else graph.insert([0], [1])
            graph.delete([0], [2]) if u % 2 == 0 else graph.insert([0], [2])
            live.result()
            epochs.append(live.epoch)
        assert live.changes(epochs[1]).communities.column("epoch").unique().to_pylist() == epochs[2:]
        assert live.changes(epochs[3]).vertices.num_rows == 0
        with pytest.raises(InvalidOption, match=f"^since is {first}; .* begins at epoch {epochs[1]}.*history=4"):
            live.changes(first)
        with pytest.raises(InvalidOption, match=f"^since is {epochs[3] + 1}; the last read was at epoch {epochs[3]}"):
            live.changes(epochs[3] + 1)
        with pytest.raises(InvalidOption, match="^since is -1"):
            live.changes(-1)
        for bad in (0, -1, 1.5):
            with pytest.raises(InvalidOption, match=f"^history is {bad}"):
                graph.maintain("leiden", history=bad)
        with graph.maintain("connected_components") as other, pytest.raises(InvalidOption, match="'leiden'"):
            other.changes(0)


def test_a_closed_result_is_computed_again_with_its_names(patient):
    with DynamicGraph(None, 6, directed=False) as graph:
        graph.insert([0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3])
        live = graph.maintain("leiden")
        before, epoch = live.names().to_numpy(), live.epoch
        live.result().close()
        np.testing.assert_array_equal(live.names().to_numpy(), before)
        assert live.changes(epoch).communities.num_rows == 0


@pytest.mark.parametrize("when", ["before names pass", "after"])
def test_a_read_that_fails_leaves_a_gap(patient, monkeypatch, when):
    """No name comes back, and the history begins again at the next read."""
    pass_on = Names.pass_on

    def failing(*args: Any) -> None:
        if when == "after":
            pass_on(*args)
        raise CapacityError("no memory")

    with DynamicGraph(None, 8, directed=False) as graph:
        graph.insert([0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3])
        live = graph.maintain("leiden")
        first = live.epoch
        graph.insert([6], [7])
        monkeypatch.setattr(Names, "pass_on", failing)
        with pytest.raises(CapacityError):
            live.result()
        monkeypatch.undo()
        assert live.names().to_numpy().tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
        with pytest.raises(InvalidOption, match=f"^since is {first}; .* begins at epoch {live.epoch}"):
            live.changes(first)


def test_a_rank_that_failed_alone_loses_the_names_of_all(patient, client):
    """The names of its communities are new ones then, on all ranks."""
    with DynamicGraph(client, 8, directed=False) as graph:
        graph.insert([0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3])
        live = graph.maintain("leiden")
        before = live.names().to_numpy()
        client.run(fail_once, workers=[next(iter(client.scheduler_info()["workers"]))])
        graph.insert([6], [7])
        with pytest.raises(CapacityError):
            live.result()
        after = live.names().to_numpy()
        assert after.min() > before.max() and (after[:3] == after[0]).all() and after[6] == after[7]
    assert_clean(client)


def fail_once() -> None:
    """The next time that this process passes names on, it fails."""
    pass_on = Names.pass_on

    def failing(*args: Any) -> None:
        setattr(Names, "pass_on", pass_on)  # noqa: B010
        raise CapacityError("no memory")

    setattr(Names, "pass_on", failing)  # noqa: B010


@pytest.mark.parametrize("steps", [15, pytest.param(40, marks=pytest.mark.slow)])
def test_quality_over_a_stream(steps):
    """Groups drift, merge and split; the quality stays within 0.5 % of fresh runs."""
    rng, n, k = fresh_rng(), 400, 10
    group = rng.integers(0, k, n)

    def edges(m: int) -> tuple[np.ndarray, np.ndarray]:
        src, dst = rng.integers(0, n, (2, m))
        order = np.argsort(group, kind="stable")
        first, end = (np.searchsorted(group[order], group[src], side) for side in ("left", "right"))
        near = order[first + rng.integers(0, 1 << 30, m) % (end - first)]
        return src, np.where(rng.random(m) < 0.7, near, dst)

    losses, hows = [], Counter[str]()
    with DynamicGraph(None, n, directed=False) as graph:
        stream = [edges(20) for _ in range(200)]
        for src, dst in stream:
            graph.insert(src, dst)
        live = graph.maintain("leiden")
        for step in range(steps):
            group[rng.integers(0, n, 2)] = rng.integers(0, k, 2)
            if step % 20 == 10:
                group[group == rng.integers(0, k)] = rng.integers(0, k)
            graph.delete(*stream.pop(0))
            stream.append(edges(20))
            graph.insert(*stream[-1])
            got, fresh = live.result().quality, graph.leiden().quality
            losses.append(1 - got / fresh)
            hows[live.report.how] += 1
    print(hows, max(losses))
    assert np.mean(losses) < 0.005 and hows["incremental"] > 0.7 * steps


def test_the_better_communities_are_kept(monkeypatch):
    """They are computed anew at each read while that is better, and later at most of them."""
    monkeypatch.setattr(communities, "FIRST", 0.0)
    monkeypatch.setattr(communities, "LEAST", 0.0)
    rng, n, better = fresh_rng(), 300, Counter[bool]()
    with DynamicGraph(None, n, directed=False) as graph:
        graph.insert(*rng.integers(0, n, (2, 1500)))
        live = graph.maintain("leiden")
        live.result()
        for _ in range(30):
            graph.insert(*rng.integers(0, n, (2, 20)))
            got, fresh = live.result().quality, graph.leiden().quality
            if live.report.how == "recomputed":
                assert got >= fresh
                better[got > fresh] += 1
    print(better)
    assert better[True] and better[False]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_on_a_gpu(patient, kind):
    for method in METHODS:
        assert fuzz(None, {**kind, "device": "cuda"}, method, 60, 400, {"structure": "slabgraph"})["incremental"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_long_streams(client3, kind, structure):
    for method in METHODS:
        for place in (None, client3):
            fuzz(place, kind, method, 120, 200, {"structure": structure})


@pytest.mark.parametrize(("keys", "ends"), [("string", ["a", "b", "c"]), ("int64", [7, 8, 9]), (None, [0, 1, 2])])
def test_tables_without_vertices_have_the_type_of_the_vertices(keys, ends):
    with DynamicGraph(keys=keys, directed=False, device="cpu") as graph:
        graph.insert(ends, [ends[1], ends[2], ends[0]])
        live = graph.maintain("louvain")
        before, kind = live.epoch, live.changes(live.epoch).vertices.schema.field("vertex").type
        assert kind == ("string" if keys == "string" else "int64")
        graph.delete_vertices(ends[:1])
        live.result()
        assert live.changes(before).vertices.schema.field("vertex").type == kind
        graph.insert([ends[0]], [ends[1]])
        live.result()
        assert live.changes(before).vertices.schema.field("vertex").type == kind
        assert live.changes(live.epoch).vertices.schema.field("vertex").type == kind
