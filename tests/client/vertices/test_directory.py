"""What a client knows of where the vertices are: as the ranks last said, and asked anew after a Ctrl-C."""

from __future__ import annotations

import numpy as np
import pytest
from graph_model import GraphModel
from plain_graph import PlainGraph, fresh_rng

from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import CapacityError, GraphClosed, InvalidBatch, UnknownVertex
from mgraph.partition import Partition

N = 20


@pytest.fixture
def graph():
    return PlainGraph(GraphModel(N), Numbering(Partition((0, 5, N)), fresh_rng().permutation(N).astype(np.uint32)))


@pytest.fixture
def directory(graph):
    return Directory(graph, graph.numbering)


def interrupted(graph: PlainGraph, what: str) -> None:
    """The ranks have changed, and a Ctrl-C kept the client from hearing of it."""
    now, order = graph.numbering, fresh_rng().permutation(N).astype(np.uint32)
    graph.numbering = {
        "added": now.moved(now.partition.grown(3)),
        "moved": now.moved(Partition((0, 9, N))),
        "ordered": Numbering(Partition.equal(N, 2), order, now.generation + 1),
        "nothing": now,
    }[what]
    graph.unsettled = True


def assert_known(graph: PlainGraph, directory: Directory) -> None:
    assert directory.numbering.partition == graph.numbering.partition
    assert directory.numbering.generation == graph.numbering.generation
    every = np.arange(graph.numbering.n_vertices)
    np.testing.assert_array_equal(directory.numbering.inside(every), graph.numbering.inside(every))
    assert directory.n_vertices == graph.numbering.n_vertices


def test_nobody_is_asked_what_is_known(graph, directory):
    for _ in range(3):
        directory.check()
        assert directory.ids([0, N - 1], "ids").tolist() == [0, N - 1]
        assert directory.n_vertices == N
    assert graph.asked == []


@pytest.mark.parametrize("what", ["added", "moved", "ordered", "nothing"])
def test_the_ranks_are_asked_once_after_an_interrupt(graph, directory, what):
    interrupted(graph, what)
    assert directory.n_vertices == N  # as they last said
    directory.check()
    assert graph.asked == ["inspect", *(["order"] if what == "ordered" else [])]
    assert_known(graph, directory)
    directory.check()
    assert len(graph.asked) == 1 + (what == "ordered")


def test_memory_for_more_vertices_is_taken_before_the_workers_change(graph, directory, monkeypatch):
    was = directory.numbering
    with directory.moving(more=3):
        graph.numbering = was.moved(was.partition.grown(3))
        graph.call("inspect")  # as any answer says it
    assert_known(graph, directory)

    def no_room(device, n, dtype):
        raise CapacityError(f"{n} are too many")

    monkeypatch.setattr(Device, "empty", no_room)
    now = directory.numbering
    with pytest.raises(CapacityError, match="27 are too many"), directory.moving(more=4):
        pytest.fail("the workers were asked to change")
    with pytest.raises(CapacityError, match="n_vertices"), directory.moving(more=1 << 32):
        pytest.fail("the workers were asked to change")
    assert directory.numbering is now


def test_a_client_whose_workers_refuse_more_vertices_keeps_its_numbering(directory):
    now = directory.numbering
    with pytest.raises(CapacityError, match="no room"), directory.moving(more=3):
        raise CapacityError("no room")
    assert directory.numbering is now


def test_ids_are_those_of_the_vertices_there_are_now(graph, directory):
    interrupted(graph, "added")
    assert directory.ids([N + 2], "ids").tolist() == [N + 2]
    with pytest.raises(UnknownVertex, match=f"ids.0. is {N + 3}; the graph has {N + 3} vertices"):
        directory.ids([N + 3], "ids")
    with pytest.raises(InvalidBatch, match="ids.0. is -1"):
        directory.ids([-1], "ids")


@pytest.mark.parametrize("what", ["added", "moved", "ordered"])
def test_a_move_begins_from_what_the_ranks_have_and_is_followed(graph, directory, what):
    interrupted(graph, what)
    with directory.moving():
        assert_known(graph, directory)
        n = directory.n_vertices
        graph.numbering = graph.numbering.moved(graph.numbering.partition.grown(4))
        graph.call("inspect")
    assert_known(graph, directory)
    assert directory.n_vertices == n + 4


def test_a_move_that_fails_is_followed_as_far_as_it_came(graph, directory):
    with pytest.raises(KeyboardInterrupt), directory.moving():
        graph.numbering = graph.numbering.moved(Partition((0, 9, N)))
        graph.call("inspect")
        raise KeyboardInterrupt
    assert_known(graph, directory)


def test_the_known_ranges_stay_where_those_of_the_ranks_do_not_join(graph, directory):
    """What a loss leaves: ranks that switched, beside one that did not."""
    first, _ = graph.said()
    graph.numbering = graph.numbering.moved(Partition((0, 9, N + 3)))
    graph.states = [first, graph.said()[1]]
    assert directory.n_vertices == N
    directory.check()
    assert directory.numbering.partition == Partition((0, 5, N))


def test_what_any_call_would_raise_is_raised_first(graph, directory):
    interrupted(graph, "added")
    graph.problem = GraphClosed("graph g is closed")
    for call in (directory.check, lambda: directory.ids([0], "ids"), lambda: directory.moving().__enter__()):
        with pytest.raises(GraphClosed):
            call()
    assert graph.asked == []
    assert directory.n_vertices == N
