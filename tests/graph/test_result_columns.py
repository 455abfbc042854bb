"""Every operation on every column of every algorithm gives what NumPy gives on `to_numpy()`, or speaks keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from keyed_model import keys_of
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidOption, VertexValues
from mgraph.algorithms import ALGORITHMS

N = 30

#: calls of each algorithm whose columns stay on the workers, for a graph and the names of three of its vertices
CALLS: dict[str, list[Callable[[Any, list], VertexValues]]] = {
    "betweenness_centrality": [lambda g, v: g.betweenness_centrality(), lambda g, v: g.betweenness_centrality(k=1)],
    "bfs": [lambda g, v: g.bfs(v[0], predecessors=True), lambda g, v: g.bfs(v[1], direction="in", predecessors=True)],
    "clustering": [lambda g, v: g.clustering()],
    "connected_components": [
        lambda g, v: g.connected_components(),
        lambda g, v: g.maintain("connected_components").result(),
    ],
    "core_number": [lambda g, v: g.core_number()],
    "degree_centrality": [lambda g, v: g.degree_centrality()],
    "distances": [lambda g, v: g.distances(v)],
    "gather": [lambda g, v: g.gather(1.5), lambda g, v: g.gather(1, "count"), lambda g, v: g.gather(1, "max")],
    "eigenvector_centrality": [lambda g, v: g.eigenvector_centrality()],
    "hits": [lambda g, v: g.hits()],
    "katz_centrality": [lambda g, v: g.katz_centrality(0.001)],
    "k_core": [lambda g, v: g.k_core(2)],
    "label_propagation": [lambda g, v: g.label_propagation(3)],
    "leiden": [lambda g, v: g.leiden(), lambda g, v: g.leiden(0.3, quality="cpm")],
    "louvain": [lambda g, v: g.louvain()],
    "modularity": [],  # a number, of columns in between
    "multi_source_bfs": [lambda g, v: g.multi_source_bfs(v)],
    "pagerank": [
        lambda g, v: g.pagerank(),
        lambda g, v: g.pagerank(dtype="float32"),
        lambda g, v: g.pagerank(personalization=[{v[0]: 1}, {v[1]: 1}]),
    ],
    "sssp": [
        lambda g, v: g.sssp(v[0], predecessors=True),
        lambda g, v: g.maintain("sssp", source=v[1], predecessors=True).result(),
    ],
    "strongly_connected_components": [lambda g, v: g.strongly_connected_components()],
    "triangles": [lambda g, v: g.triangles()],
}  # fmt: skip
#: have columns of all kinds and types; make test leaves out the others
QUICK = ("bfs", "distances", "k_core", "leiden", "multi_source_bfs", "pagerank", "sssp")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(CALLS)]


@pytest.fixture(scope="module", params=[None, "int64", "string"])
def graph(request, place) -> Iterator[tuple[DynamicGraph, list]]:
    """An undirected, weighted graph of two parts and isolated vertices, and its vertices in their order."""
    rng = fresh_rng()
    names = list(range(N)) if request.param is None else keys_of(request.param, rng.permutation(N))
    src, dst = (np.concatenate([rng.integers(0, 12, 30), rng.integers(12, 26, 30)]) for _ in range(2))
    options: dict[str, Any] = {"n_vertices": N} if request.param is None else {"keys": request.param}
    with DynamicGraph(place, directed=False, weighted=True, **options) as graph:
        if request.param is not None:
            graph.add_vertices(names)
        ends = ([names[i] for i in of] for of in (src, dst))
        graph.insert(*ends, rng.random(60, np.float32))
        graph.reorder()
        yield graph, names


def columns_of(graph: tuple[DynamicGraph, list], name: str) -> Iterator[tuple[VertexValues, list]]:
    """Every column of every call of an algorithm, and the names of the vertices."""
    made, names = graph
    for call in CALLS[name]:
        result = call(made, [names[3], names[14], names[29]])
        for column in result._remote.dtypes:
            yield getattr(result, column, result) if column != next(iter(result._remote.dtypes)) else result, names


def test_all_algorithms_are_here():
    own = {name: known for name, known in ALGORITHMS.items() if known.run.__module__.startswith("mgraph.")}
    assert set(CALLS) == {name for name, known in own.items() if known.result is None}  # other tests add some


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_numpy_s(graph, name):
    for column, names in columns_of(graph, name):
        if column._kind not in ("value", "rows"):
            continue
        a = column.to_numpy()
        # elementwise
        for operation in (
            lambda x: x + 1,
            lambda x: 2 - x,
            lambda x: x * x,
            lambda x: np.sqrt(abs(x)),
            lambda x: np.maximum(x, 1),
            lambda x: x == 1,
            lambda x: x != x,
            lambda x: x > 0.5,
            lambda x: x <= x,
        ):
            with np.errstate(all="ignore"):
                want = operation(a)
            assert operation(column).dtype == want.dtype
            np.testing.assert_array_equal(operation(column), want)
        np.testing.assert_array_equal(column.where(column > 0, -1), np.where(a > 0, a, -1))
        # to one number
        if a.dtype.kind != "b":
            flat = a.astype(float).reshape(-1)
            for order in (1, 2, np.inf):
                np.testing.assert_allclose(column.norm(order), np.linalg.norm(flat, order), rtol=1e-12)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose([column.sum(), column.mean()], [a.sum(dtype=float), a.mean(dtype=float)], 1e-12)
            np.testing.assert_array_equal([column.min(), column.max()], [a.min(), a.max()])
        assert (np.mean(column) == column.mean()) | np.isnan(column.mean())
        # of some vertices
        np.testing.assert_array_equal(column[[names[5], names[2]]], a[..., [5, 2]])
        np.testing.assert_array_equal(column[7:3:-1], a[..., 7:3:-1])
        np.testing.assert_array_equal(column[names[9]], a[..., 9])
        np.testing.assert_array_equal(list(column), a)
        vertices, values = zip(*column.items(), strict=True)
        assert list(vertices) == names
        np.testing.assert_array_equal(np.stack(values, axis=-1), a)
        # the largest
        if column._kind == "rows":
            np.testing.assert_array_equal(column.head(3).to_numpy(), a[:, :3].T)
            for one_row in (lambda column=column: column.top(3), column.to_arrow):
                with pytest.raises(InvalidOption, match="several rows"):
                    one_row()
            continue
        pd.testing.assert_series_equal(column.head(3), column.to_series().head(3))
        for k in (0, 1, 4, N, N + 1):
            largest = column.top(k)
            want = pd.Series(a.astype(float)).sort_values(ascending=False).to_numpy()[:k]  # NaN last
            np.testing.assert_array_equal(np.array([value for _, value in largest], float), want)
            assert len({vertex for vertex, _ in largest}) == min(k, N)
            for vertex, value in largest:
                np.testing.assert_array_equal(value, a[names.index(vertex)])


@pytest.mark.parametrize("name", NAMES)
def test_vertices_are_spoken_of_as_users_name_them(graph, name):
    for column, names in columns_of(graph, name):
        if column._kind not in ("vertex", "label"):
            continue
        keyed, ids = graph[0].keys is not None, column.to_numpy()
        none = None if keyed else -1
        want = [names[i] if i >= 0 else none for i in ids]
        # one by one, and many
        assert list(column) == want
        assert [column[name] for name in names] == want
        assert dict(column.items()) == dict(zip(names, want, strict=True))
        some = column[[names[5], names[2], names[29]]]
        assert some.tolist() == [want[i] for i in (5, 2, 29)]
        assert some.dtype == (object if keyed and (graph[0].keys == "string" or None in some) else np.int64)
        assert column[3:20:2].tolist() == want[3:20:2]
        assert column.head(4).dropna().to_dict() == column.to_series().head(4).dropna().to_dict()
        assert column.head(4).isna().to_list() == column.to_series().head(4).isna().to_list()
        np.testing.assert_array_equal(np.asarray(column), ids)
        # == and != with a vertex, with none, with a stranger
        stranger = {None: N + 7, "int64": -(2**60), "string": "a stranger"}[graph[0].keys]
        for other in (names[3], names[20], want[0], none, None, stranger):
            mask = np.array([(-1 if keyed else none) == i if other in (none, None) else v == other
                             for i, v in zip(ids, want, strict=True)])  # fmt: skip
            for found in (column == other, other == column):
                np.testing.assert_array_equal(found, mask)
                assert found.sum() == mask.sum()
            np.testing.assert_array_equal(column != other, ~mask)
        # with vertices of each vertex
        rolled = want[1:] + want[:1]
        mask = np.array([v == w for v, w in zip(want, rolled, strict=True)])
        series = pd.Series(rolled, names, dtype=object)
        for other in (rolled, np.array(rolled, object), series, series.sample(frac=1, random_state=1)):
            np.testing.assert_array_equal(column == other, mask)
            np.testing.assert_array_equal(column != other, ~mask)
        assert (column == column.to_series()).min() == (column == column).min() == True  # noqa: E712
        assert (column == column.to_arrow()).min()
        # with another column of vertices, stored by other ids
        labels = graph[0].connected_components()
        np.testing.assert_array_equal(column == labels, ids == labels.to_numpy())
        np.testing.assert_array_equal(labels != column, ids != labels.to_numpy())


@pytest.mark.parametrize("name", NAMES)
def test_vertices_are_no_numbers(graph, name):
    numbers = graph[0].degree_centrality()
    for column, _ in columns_of(graph, name):
        if column._kind not in ("vertex", "label"):
            continue
        for call in (
            column.top,
            column.sum,
            column.mean,
            column.min,
            column.max,
            column.norm,
            lambda column=column: np.sum(column),
            lambda column=column: column + 1,
            lambda column=column: 1 - column,
            lambda column=column: numbers * column,
            lambda column=column: column < column,
            lambda column=column: column >= 3,
            lambda column=column: abs(column),
            lambda column=column: np.maximum(numbers, column),
            lambda column=column: column.where(numbers > 0, 0),
            lambda column=column: numbers.where(column, 0),
            lambda column=column: numbers.where(numbers > 0, column),
        ):
            with pytest.raises(InvalidOption, match="needs numbers, and .* holds vertices"):
                call()


def test_what_names_no_vertex_is_refused(graph):
    made, _ = graph
    labels = made.connected_components()
    wrong = {None: ["a", [1, 2], ["a"] * N], "int64": ["a", 2.5, ["a"] * N], "string": [5, [5] * N]}[made.keys]
    for other in wrong:
        with pytest.raises(InvalidOption):
            labels == other  # noqa: B015
    if made.keys is not None:
        with pytest.raises(InvalidOption, match=r"compare positions: to_numpy\(\) of both"):
            labels == made.degree_centrality()  # noqa: B015


def test_gather_takes_places(graph):
    made, _ = graph
    labels = made.connected_components()
    np.testing.assert_array_equal(made.gather(labels, "max"), made.gather(labels.to_numpy(), "max"))
    nearest = made.multi_source_bfs([graph[1][3]]).nearest
    np.testing.assert_array_equal(made.gather(nearest, "max"), made.gather(nearest.to_numpy(), "max"))


def test_a_walk_along_predecessors_leads_home(graph):
    made, names = graph
    found = made.bfs(names[3], predecessors=True)
    for vertex, hops in found.items():
        walked = 0
        while (before := found.predecessors[vertex]) not in (None, -1):
            vertex, walked = before, walked + 1
        assert (vertex == names[3], walked) == (hops >= 0, max(hops, 0))
