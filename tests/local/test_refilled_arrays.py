"""A source that fills the same arrays for each of its batches: what is in flight keeps its edges."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph import DynamicGraph, EdgeBatch, Operations, batch

N, BATCHES, EDGES = 1000, 12, 40


def refilled(form):
    """Yield the batches of a generator with buffers of the stored dtypes, in some form."""
    src, dst, weight = np.zeros(EDGES, np.uint32), np.zeros(EDGES, np.uint32), np.zeros(EDGES, np.float32)
    for step in range(BATCHES):
        src[:], dst[:], weight[:] = np.arange(EDGES) + step * EDGES, step, step
        yield form(src, dst, weight)


class Placed:
    """Source with places."""

    def __init__(self, form):
        self.form = form

    def batches(self, after):
        for place, part in enumerate(refilled(self.form)):
            yield ("topic", place + 1), part


class Held:
    """Object whose `__array__` is an array that others fill."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def frame(src, dst, weight):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"src": src, "dst": dst, "weight": weight}, copy=False)


FORMS = {
    "batch": EdgeBatch,
    "tuple": lambda *columns: columns,
    "views": lambda *columns: tuple(column[:] for column in columns),
    "mapping": lambda src, dst, weight: {"src": src, "dst": dst, "weight": weight},
    "frame": frame,
    "objects": lambda *columns: tuple(map(Held, columns)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_stream(form):
    with DynamicGraph(n_vertices=N, weighted=True) as graph:
        assert graph.stream(refilled(FORMS[form])).inserted == BATCHES * EDGES
        check(graph)


def test_batches_of_a_list_are_not_copied(monkeypatch):
    monkeypatch.setattr(batch, "copied", None)
    with DynamicGraph(n_vertices=N) as graph:
        assert graph.stream([EdgeBatch([0], [1]), EdgeBatch([1], [2])]).inserted == 2


@pytest.mark.parametrize("form", ["tuple", "batch"])
@pytest.mark.parametrize("call", ["stream", "follow"])
def test_a_source_with_places(call, form, tmp_path):
    with DynamicGraph(n_vertices=N, weighted=True, store=tmp_path / "store", sync="background") as graph:
        getattr(graph, call)(Placed(FORMS[form]))
        check(graph)


def function(form):
    """A source of `ingest`, which is called for the next step while the last one is still applied and logged."""
    parts = refilled(form)
    return lambda rank, size, step: next(parts, None)


@pytest.mark.parametrize("sync", ["background", "always"])
@pytest.mark.parametrize("form", FORMS)
def test_a_function_with_a_store(form, sync, tmp_path):
    with DynamicGraph(n_vertices=N, weighted=True, store=tmp_path / "store", sync=sync) as graph:
        graph.ingest(function(FORMS[form]))
        check(graph)
    with DynamicGraph.open(tmp_path / "store") as graph:
        check(graph)


def test_operations_of_a_function():
    kinds = np.zeros(EDGES, np.int8)
    with DynamicGraph(n_vertices=N, weighted=True) as graph:
        graph.ingest(function(lambda *columns: Operations(kinds, *columns)))
        check(graph)


def check(graph):
    src = np.arange(BATCHES * EDGES)
    assert graph.num_edges == len(src)
    assert graph.weights(src, src // EDGES).tolist() == (src // EDGES).tolist()
