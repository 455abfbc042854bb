"""Published graphs with keys: every client calls the vertices the same, whoever added or removed them."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
import sharing_client
from faults import before, refuse, rest
from graph_clusters import assert_clean
from interrupts import ctrl_c, when
from keyed_model import keys_of
from plain_graph import fresh_rng

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, Operations, UnknownVertex

KINDS = ["int64", "string"]


@pytest.fixture(autouse=True)
def nothing_is_left(client):
    yield
    assert_clean(client)


def edges_of(graph: DynamicGraph) -> list[tuple]:
    """The edges by keys, in some order, and weights."""
    names, rows = graph.vertices().tolist(), graph.to_csr()
    src = np.repeat(np.arange(len(names)), np.diff(rows.offsets)).tolist()
    return sorted((names[u], names[v], w) for u, v, w in zip(src, rows.dst.tolist(), rows.weight.tolist(), strict=True))


def check(graph: DynamicGraph, alone: DynamicGraph) -> None:
    """The graph is as one of a single client that was changed alike, by all that it says in keys."""
    names = alone.vertices().tolist()
    assert graph.vertices().tolist() == names
    assert (graph.num_vertices, graph.num_edges, graph.keys) == (len(names), alone.num_edges, alone.keys)
    if names:
        assert graph.degrees(names[::-1]).tolist() == alone.degrees(names[::-1]).tolist()
    assert edges_of(graph) == edges_of(alone)
    assert graph.fingerprint() == alone.fingerprint()


@pytest.mark.parametrize(
    ("kind", "how"), [pytest.param("int64", {"order": "degree"}, marks=pytest.mark.slow), ("string", {})], ids=KINDS
)
def test_clients_in_turn_make_the_graph_that_one_would(client, other, kind, how):
    rng = fresh_rng()
    options = {"keys": kind, "weighted": True}
    with DynamicGraph(client, **options, **how) as g, DynamicGraph(**options) as alone:
        for graph in (g, alone):
            graph.insert(*(keys_of(kind, ends) for ends in (range(5), range(3, 8))))
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            check(h, alone)
            late = None
            for step in range(10):
                clients = [g, h] + [late] * (late is not None)
                writer, reader = (clients[i] for i in rng.permutation(len(clients))[:2])
                change = changed(rng, step % 8, kind, alone.vertices().tolist())
                assert change(writer) == change(alone)
                check(reader, alone)
                assert reader.epoch == alone.epoch
                if step == 5:
                    late = DynamicGraph.attach(client, "people")
            check(late, alone)
            late.close()
            everything = alone.vertices().tolist()
            for graph in (h, alone):
                graph.delete_vertices(everything)
            check(g, alone)
            for graph in (g, alone):
                graph.add_vertices(everything[:2])
            check(h, alone)
        g.unpublish()


def changed(rng: np.random.Generator, what: int, kind: str, there: list):
    """A change of a graph by keys, and what it answers but for its time."""
    src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 60, (2, 12)))
    weight, op = rng.integers(1, 9, 12).astype(float), np.where(rng.random(12) < 0.4, -1, 1)
    gone = [there[i] for i in sorted({*rng.integers(0, len(there), len(there) // 5 + 1).tolist()})]
    batch = EdgeBatch(src, dst, weight, op, keys=kind)
    counts = lambda done: (done.inserted, done.updated, done.deleted, done.missing)  # noqa: E731
    kinds = ["insert"] * 6 + ["delete"] * 3 + ["has_edge"] * 3
    asked = Operations(kinds, src[:9] + there[:1] * 3, dst[:9] + there[-1:] * 3, keys=kind)

    def in_flight(graph):
        with graph.pipeline() as pipe:
            done = [pipe.update(EdgeBatch(src[i : i + 4], dst[i : i + 4], keys=kind)) for i in (0, 4, 8)]
        return [counts(one.result()) for one in done]

    return [
        lambda graph: counts(graph.update(batch)),
        lambda graph: graph.delete_vertices(gone).deleted,
        lambda graph: len(graph.add_vertices(src)),
        in_flight,
        lambda graph: (graph.rebalance(), graph.reorder())[2:],
        lambda graph: (lambda said: (counts(said.report), said.has_edge.tolist()))(graph.execute(asked)),
        lambda graph: counts(graph.delete(src, dst)),
        lambda graph: graph.drop_isolated(),
    ][what]


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_batch_leaves_no_key_with_anybody(client, other, kind):
    a, b, c, d, e = keys_of(kind, range(1, 6))
    with DynamicGraph(client, keys=kind) as g:
        g.insert([a], [b])
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            client.run(before, "prepare", refuse, workers=[g.workers[1]])
            with pytest.raises(CapacityError, match="no room"):
                g.insert([c], [d])
            h.insert([d], [e])  # as many keys, others
            assert g.vertices().tolist() == h.vertices().tolist() == [a, b, d, e]
            with pytest.raises(UnknownVertex, match="no vertex of the graph"):
                g.degrees([c])
            assert g.degrees([d, e]).tolist() == [1, 0]
            client.run(before, "remove", refuse, workers=[g.workers[0]])
            with pytest.raises(CapacityError, match="no room"):
                h.delete_vertices([a])
            g.delete_vertices([b, d])
            h.insert([c], [d])
            assert g.vertices().tolist() == h.vertices().tolist() == [a, e, c, d]
        g.unpublish()


def test_ctrl_c_and_then_another_client(client, other, tmp_path):
    with DynamicGraph(client) as g:
        g.insert(["a"], ["b"])
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            for step, stopped, then, left in (
                ("prepare", lambda: g.insert(["c"], ["a"]), lambda: h.insert(["x"], ["x"]), ["a", "b", "x"]),
                ("commit", lambda: g.insert(["d"], ["a"]), lambda: h.insert(["y"], ["y"]), ["a", "b", "x", "d", "y"]),
                ("remove", lambda: g.delete_vertices(["a"]), lambda: h.delete_vertices(["b"]), ["a", "x", "d", "y"]),
            ):
                client.run(before, step, rest, 0.5, tmp_path / step, workers=[g.workers[1]])
                with when((tmp_path / step).exists, ctrl_c), pytest.raises(KeyboardInterrupt):
                    stopped()
                then()
                assert h.vertices().tolist() == left
                assert g.vertices().tolist() == left
                assert g.degrees(left).tolist() == h.degrees(left).tolist()
        g.unpublish()


def test_the_first_edges_of_any_client_decide(client, other):
    with DynamicGraph(client) as g:
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            assert (g.keys, h.keys) == ("undecided", "undecided")
            client.run(before, "prepare", refuse, workers=[g.workers[1]])
            with pytest.raises(CapacityError, match="no room"):
                g.insert([10**12], [5])
            h.insert(["a"], ["b"])
            with pytest.raises(InvalidBatch, match="int64 keys and the graph has keys of the kind 'string'"):
                g.insert([10**12], [5])
            with pytest.raises(InvalidBatch, match="the graph has keys"), g.pipeline() as pipe:
                pipe.update(EdgeBatch([0], [1]))
            assert g.vertices().tolist() == ["a", "b"]
            h.delete_vertices(["a", "b"])
            with DynamicGraph.attach(other, "people") as i:
                assert (i.keys, i.num_vertices) == ("string", 0)
        g.unpublish()
    with DynamicGraph(client) as g:
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            h.insert([0], [2])
            g.insert([3], [1])
            assert (g.keys, h.keys, g.vertices().tolist()) == (None, None, [0, 1, 2, 3])
        g.unpublish()


def test_a_store_has_the_keys_of_all_clients(client, other, tmp_path):
    with DynamicGraph(client, keys="string", store=tmp_path / "store") as g:
        g.insert(["a"], ["b"])
        g.publish("people")
        with DynamicGraph.attach(other, "people") as h:
            h.insert(["c"], ["a"])
            g.snapshot()
            h.delete_vertices(["b"])
            g.insert(["d"], ["c"])
        g.unpublish()
    with DynamicGraph.open(None, tmp_path / "store") as again:
        assert again.vertices().tolist() == ["a", "c", "d"]
        assert again.neighbors(["c", "d"]).dst.tolist() == ["a", "c"]


@pytest.fixture(scope="module")
def others():
    """Clients in other processes."""
    with sharing_client.clients() as others:
        yield others


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_client_is_killed_in_the_middle_of_a_change(client, others, kind):
    rng = fresh_rng()
    seed = int(rng.integers(1 << 30))
    with DynamicGraph(client, keys=kind, weighted=True) as g, DynamicGraph(keys=kind, weighted=True) as alone:
        sharing_client.write_keys(g, seed)
        g.publish("people")
        pid = others.start(client.scheduler.address, "people", seed, kind)
        sharing_client.write_keys(g, seed)
        time.sleep(rng.random() / 4)
        os.kill(pid, signal.SIGKILL)
        sharing_client.write_keys(g, seed)
        while alone.epoch < g.epoch:
            sharing_client.write_keys(alone, seed)
        check(g, alone)
        with DynamicGraph.attach(client, "people") as late:
            check(late, alone)
        g.unpublish()
