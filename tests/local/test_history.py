"""What a graph did last, and its pictures."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidOption, MgraphError, Operations, UnknownVertex
from mgraph.client.reports import history
from mgraph.plotting.drawing import _colours
from mgraph.plotting.timeline import rates

N = 40


@pytest.fixture
def graph():
    with DynamicGraph(n_vertices=N, reverse=True) as graph:
        yield graph


def test_each_change_and_each_algorithm_is_an_event(graph):
    began = time.time()
    reports = [graph.insert([0, 1, 1], [1, 2, 2]), graph.delete([0, 5], [1, 5])]
    reports += graph.ingest([([1, 2], [2, 3]), ([4], [5]), EdgeBatch([4], [5], op=-1)])
    with graph.pipeline() as pipe:
        reports.append(pipe.update(EdgeBatch([6], [7])).result())
        reports.append(pipe.execute(Operations(["insert"], [7], [8])).result().report)
    reports.append(graph.execute(Operations(["delete", "has_edge"], [7, 6], [8, 7])).report)
    graph.add_vertices(3)
    graph.bfs(0)
    reports.append(graph.delete_vertices([6]))
    graph.degrees()
    found = graph.history()
    kinds = ["update", "update", *["ingest"] * 3, "update", "execute", "execute"]
    kinds += ["add_vertices", "bfs", "delete_vertices"]
    assert [event.kind for event in found] == kinds
    assert [event.epoch for event in found] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10]
    assert [event.operations for event in found] == [2, 2, 2, 1, 1, 1, 1, 1, 3, 0, 1]
    assert [event.edges for event in found] == [2, 1, 2, 3, 2, 3, 4, 3, 3, 3, 2]
    batches = [event for event in found if event.kind not in ("add_vertices", "bfs")]
    assert [event.seconds for event in batches] == [report.seconds for report in reports]
    times = [event.time for event in found]
    assert began - 0.01 <= times[0] <= times[-1] <= time.time()
    assert all(a <= b for a, b in pairwise(times))


def test_edges_that_expire_are_an_event():
    with DynamicGraph(n_vertices=N, times=True) as graph:
        graph.update(EdgeBatch([0, 1], [1, 2], time=[5, 9]))
        graph.expire(7)
        assert [(event.kind, event.operations, event.edges) for event in graph.history()] == [
            ("update", 2, 2),
            ("expire", 1, 1),
        ]


def test_a_refused_batch_is_no_event_and_old_events_are_forgotten(graph, monkeypatch):
    with pytest.raises(UnknownVertex):
        graph.insert([0], [N])
    assert graph.history() == []
    monkeypatch.setattr(history, "KEPT", 3)
    with DynamicGraph(n_vertices=2) as small:
        for _ in range(5):
            small.insert([0], [1])
        assert [event.epoch for event in small.history()] == [3, 4, 5]


def test_rates_sum_to_all_operations():
    for times in ([5.0], [0.0, 0.1, 0.2], [0.0, 300.0, 599.0]):
        ends, found = rates(np.array(times), np.full(len(times), 7.0))
        assert len(found) <= 120
        assert np.diff(ends).min() >= 0.999
        assert (found * np.diff(ends)).sum() == pytest.approx(7 * len(times))


# ---- pictures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot

    yield matplotlib.pyplot
    matplotlib.pyplot.close("all")


def test_a_plot_of_the_last_minutes(graph, pyplot, tmp_path):
    assert len(graph.plot().axes) == 3  # of a graph that did nothing
    graph.stream(([i, i], [i + 1, i + 2]) for i in range(30))
    graph.pagerank()
    figure = graph.plot(minutes=1)
    edges, rate, seconds = figure.axes
    assert edges.lines[0].get_ydata().tolist() == [2 * i for i in range(1, 31)]
    assert edges.get_title() == f"graph {graph.id}: epoch 30, 60 edges"
    (stairs,) = rate.patches
    found = stairs.get_data()
    assert (found.values * np.diff(found.edges)).sum() == pytest.approx(60)
    assert {line.get_label(): len(line.get_xdata()) for line in seconds.lines} == {"update": 30, "pagerank": 1}
    figure.savefig(tmp_path / "plot.png")
    for bad in (0, -1, float("nan")):
        with pytest.raises(InvalidOption, match="minutes is"):
            graph.plot(bad)


@pytest.mark.parametrize(
    ("sample", "options", "message"),
    [
        (99, {}, "^sample is 99; the graph has"),
        ([0, 99], {}, r"^sample\[1\] is 99; the graph has"),
        ([0, 0], {}, r"^sample\[1\] is 0, which comes before; sample must be different"),
        ("ada", {}, "^sample is 'ada'"),
        (0, {"fanout": -2}, "^fanout is -2"),
        (0, {"fanout": True}, "^fanout is True"),
    ],
)
def test_errors_of_a_drawing_name_its_own_arguments(graph, pyplot, sample, options, message):
    with pytest.raises(MgraphError, match=message):
        graph.draw(sample, **options)


def test_a_drawing_has_the_sampled_edges(graph, pyplot, tmp_path):
    graph.insert([0, 0, 0, 1, 2, 9], [1, 2, 3, 4, 4, 0])
    figure = graph.draw(0, hops=2, fanout=-1)
    (axes,) = figure.axes
    assert axes.get_title() == "5 vertices, 5 edges, epoch 1"
    assert sorted(text.get_text() for text in axes.texts) == ["0", "1", "2", "3", "4"]
    assert graph.draw([0], direction="in", labels={9: "nine"}).axes[0].get_title() == "2 vertices, 1 edges, epoch 1"
    axes = pyplot.figure().add_subplot()
    sample = graph.sample_neighbors([0, 1], [2], seed=1, direction="out")
    drawn = graph.draw(sample, values=graph.pagerank(), labels=lambda v: f"v{v}", ax=axes)
    assert drawn is axes.figure
    assert {text.get_text() for text in axes.texts} == {f"v{v}" for v in sample.node}
    assert len(drawn.axes) == 2  # a bar of the colours
    drawn.savefig(tmp_path / "drawing.png")
    with DynamicGraph() as named:
        named.insert(["a", "b"], ["b", "c"])
        assert {text.get_text() for text in named.draw("a", 2).axes[0].texts} == {"a", "b", "c"}
    with DynamicGraph(directed=False) as roads:
        roads.insert([0, 1], [1, 2])
        assert roads.draw(0, 2).axes[0].get_title() == "3 vertices, 2 edges, epoch 1"


def test_colours_by_results_arrays_and_series(pyplot):
    with DynamicGraph(directed=False) as named:
        named.insert(["c", "a", "x"], ["b", "b", "y"])  # vertices() is c, a, x, b, y
        ranks, near = named.pagerank(), named.sample_neighbors(["a"], [-1, -1], direction="out")
        want = ranks[near.node].tolist()
        for values in (ranks, ranks.to_numpy(), ranks.to_numpy().tolist(), ranks.to_series()[::-1]):
            assert _colours(named, values, near.node.tolist(), 1).tolist() == want
        assert _colours(named, named.connected_components(), ["c", "x", "b"], 1).tolist() == [0, 1, 0]
        assert len(named.draw("a", 2, values=named.connected_components()).axes) == 2
        for bad in ([1, 2], {"a": 1}, "pagerank", named.distances(["a", "x"])):
            with pytest.raises(InvalidOption, match="values has shape .*; it must have a value for each of 5 vertices"):
                named.draw("a", values=bad)


def test_a_drawing_refuses_what_it_cannot_draw(graph, pyplot):
    graph.insert([0], [1])
    for bad, error, words in (
        ({"sample": N}, UnknownVertex, "40"),
        ({"sample": 0, "hops": 0}, InvalidOption, "hops is 0"),
        ({"sample": 0, "direction": "up"}, InvalidOption, "up"),
    ):
        with pytest.raises(error, match=words):
            graph.draw(**bad)
    with DynamicGraph(n_vertices=3000) as star:
        star.insert(np.zeros(2500, int), np.arange(2500))
        with pytest.raises(CapacityError, match="2500 vertices; a picture has at most 2000"):
            star.draw(0, fanout=-1)


def test_without_matplotlib_the_error_says_what_to_install(graph, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    for call in (graph.plot, lambda: graph.draw(0)):
        with pytest.raises(MgraphError, match=r'needs matplotlib: pip install "dask-mgraph\[plot\]"'):
            call()
