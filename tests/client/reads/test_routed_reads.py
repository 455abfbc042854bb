"""Reads are dealt to their owners and put back in the order asked: all of them against a dict of edges."""

from __future__ import annotations

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from plain_graph import PlainGraph, fresh_rng, numberings

from mgraph.client.reads import routed_reads
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.failures import Stale
from mgraph.partition import Partition

KINDS = [{}, {"directed": False}, {"weighted": True}, {"directed": False, "weighted": True}]


def graphs(rng: np.random.Generator, n: int, kind: dict) -> list[PlainGraph]:
    """A random graph by every kind of numbering."""
    model = GraphModel(n, **kind)
    if n:
        model.update(random_batch(rng, n, 5 * n, model.weighted))
    return [PlainGraph(model, numbering) for numbering in numberings(rng, n)]


def rows(model: GraphModel, ids: list[int], direction: str) -> list[dict[int, float]]:
    arcs = model.arcs() if direction == "out" else {(v, u): w for (u, v), w in model.arcs().items()}
    return [{v: w for (u, v), w in arcs.items() if u == row} for row in ids]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_reads_against_the_model(n, kind):
    rng = fresh_rng()
    for graph in graphs(rng, n, kind):
        model, numbering = graph.model, graph.numbering
        for size in (0, 1, 40):
            ids = rng.integers(0, n, size if n else 0).astype(np.uint32)
            for direction in ("out", "in"):
                want = rows(model, ids.tolist(), direction)
                degrees = routed_reads.degrees(graph, numbering, ids, direction)
                assert (degrees.dtype, degrees.tolist()) == (np.uint32, list(map(len, want)))
                csr = routed_reads.neighbors(graph, numbering, ids, direction)
                assert csr.offsets.dtype == np.int64
                assert np.diff(csr.offsets).tolist() == list(map(len, want))
                assert (csr.weight is None) == (not model.weighted)
                weights = np.ones(len(csr.dst)) if csr.weight is None else csr.weight
                for i, row in enumerate(want):
                    part = slice(csr.offsets[i], csr.offsets[i + 1])
                    found = dict(zip(csr.dst[part].tolist(), weights[part].tolist(), strict=True))
                    assert (found if model.weighted else dict.fromkeys(found)) == (
                        row if model.weighted else dict.fromkeys(row)
                    )
            dst = rng.integers(0, n, len(ids)).astype(np.uint32) if n else ids
            found = routed_reads.has_edges(graph, numbering, ids, dst)
            pairs = zip(ids.tolist(), dst.tolist(), strict=True)
            assert (found.dtype, found.tolist()) == (bool, [pair in model.arcs() for pair in pairs])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 30])
def test_all_rows_ascend_by_users_ids(n, kind):
    for graph in graphs(fresh_rng(), n, kind):
        csr = routed_reads.all_rows(graph, graph.numbering)
        offsets, dst, weight = graph.model.csr()
        np.testing.assert_array_equal(csr.offsets, offsets)
        np.testing.assert_array_equal(csr.dst, dst)
        if graph.model.weighted:
            np.testing.assert_array_equal(csr.weight, weight)
        else:
            assert csr.weight is None


# ---- ranges that move meanwhile --------------------------------------------------------------------------------------


@pytest.fixture
def graph():
    model = GraphModel(20)
    model.update(random_batch(fresh_rng(), 20, 100, False, 0))
    return PlainGraph(model, Numbering(Partition((0, 5, 20))))


EVERY = np.arange(20, dtype=np.uint32)


def degrees_of(graph: PlainGraph, directory: Directory) -> list[int]:
    return directory.read(lambda now: routed_reads.degrees(graph, now, EVERY, "out")).tolist()


@pytest.mark.parametrize("what", ["ranges", "order", "vertices"])
def test_a_read_that_a_move_overtook_is_made_again_by_what_is_now(graph, what):
    directory, rng = Directory(graph, graph.numbering), fresh_rng()
    want = np.diff(graph.model.csr()[0]).tolist()

    def move() -> None:
        now = graph.numbering
        if what == "order":
            graph.numbering = Numbering(now.partition, rng.permutation(20).astype(np.uint32), now.generation + 1)
        else:
            graph.numbering = now.moved(Partition((0, 11, 20)) if what == "ranges" else now.partition.grown(3))

    graph.before["degrees"] = move  # after the read was dealt, before the ranks answer it
    assert degrees_of(graph, directory) == want
    assert graph.asked == ["degrees", "inspect", *(["order"] if what == "order" else []), "degrees"]
    assert directory.numbering.partition == graph.numbering.partition
    assert directory.numbering.generation == graph.numbering.generation
    assert degrees_of(graph, directory) == want
    assert graph.asked[-2:] == ["degrees", "degrees"]  # known from then on


def test_ranges_that_move_at_every_read_are_followed(graph):
    directory, left = Directory(graph, graph.numbering), [5]

    def move() -> None:
        if left[0]:
            left[0] -= 1
            graph.numbering = graph.numbering.moved(Partition((0, 10 + left[0], 20)))  # other ranges every time
            graph.before["degrees"] = move

    move()
    assert degrees_of(graph, directory) == np.diff(graph.model.csr()[0]).tolist()
    assert left == [0]


def test_a_refusal_that_no_move_explains_is_raised(graph):
    """Ranks that refuse the ranges which they themselves say they have: a defect, and no reason to ask for ever."""
    directory = Directory(graph, graph.numbering)

    def refuse(now: Numbering) -> None:
        raise Stale("the ranges of the ranks have changed")

    with pytest.raises(Stale):
        directory.read(refuse)
    assert graph.asked == ["inspect"]
