"""Edges with times, and windows, in this process: random streams against a dict; bad input."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from plain_graph import fresh_rng
from time_model import KINDS, TimeModel, check, check_stream, edges_of, random_timed

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, Operations
from mgraph.structures import names

WINDOWS = [None, 1, 40, 1000]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_streams_in_this_process_against_the_model(kind, window):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), window)
    with DynamicGraph(n_vertices=12, times=True, window=window, **kind) as graph:
        check_stream(graph, model, rng, 20)
        for clock in graph._directory.coordinator._session.calls.shard.clock.times:
            clock.check_invariants()


@pytest.mark.parametrize("most", [1, 30, 100])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_number_of_edges_against_the_model(kind, most):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), None, most)
    with DynamicGraph(n_vertices=12, window_edges=most, **kind) as graph:
        check_stream(graph, model, rng, 20)


@pytest.mark.gpu
@pytest.mark.parametrize(("window", "most"), [(40, None), (None, 30)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_windows_on_a_gpu(kind, window, most):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), window, most)
    with DynamicGraph(n_vertices=12, device="cuda", times=True, window=window, window_edges=most, **kind) as graph:
        check_stream(graph, model, rng, 20)


@pytest.mark.parametrize("structure", names())
def test_every_structure_keeps_times(structure):
    rng = fresh_rng()
    with DynamicGraph(n_vertices=12, window=30, structure=structure, directed=False) as graph:
        check_stream(graph, TimeModel(False, "last", 30), rng, 6)


def test_dates_and_a_timedelta():
    rng = fresh_rng()
    model = TimeModel(True, "last", 40_000_000)
    with DynamicGraph(n_vertices=12, window=timedelta(seconds=40), times="datetime64[us]") as graph:
        for now in (0, 10, 45, 50, 200):
            batch = random_timed(rng, 12, 30, now, 20, False, "datetime64[s]")
            kept = EdgeBatch(batch.src, batch.dst, None, batch.op, time=batch.time.astype("datetime64[us]"))
            check(graph, model, graph.update(batch), model.update(kept))
        assert graph.to_csr().time.dtype == graph.neighbors([0], time=True).time.dtype == "datetime64[us]"
        assert graph.expire(np.datetime64(190, "s")).expired == model.expire(190_000_000)
        check(graph, model)
    with DynamicGraph(n_vertices=2, window=timedelta(days=1)) as graph:
        graph.insert([0], [1], time=np.datetime64("2024-02-29"))
        assert graph.to_csr().time.tolist() == [1709164800 * 10**9]


def test_times_of_rows_in_any_order():
    rng = fresh_rng()
    with DynamicGraph(n_vertices=12, times=True, structure="slabgraph") as graph:
        graph.update(random_timed(rng, 12, 100, 0, 50, False))
        edges, ids = edges_of(graph), [7, 3, 7, 11, 0]
        rows = graph.neighbors(ids, time=True)
        src = np.repeat(ids, np.diff(rows.offsets)).tolist()
        pairs = zip(src, rows.dst.tolist(), strict=True)
        assert [edges[pair][0] for pair in pairs] == rows.time.tolist()
        assert graph.neighbors(ids).time is None
        assert len(graph.neighbors([], time=True).time) == 0


def test_the_largest_and_the_least_times():
    most, least = 2**63 - 1, -(2**63) + 1
    with DynamicGraph(n_vertices=3, window=most) as graph:
        graph.insert([0, 1], [1, 2], time=[least, -5])
        assert graph.num_edges == 2
        assert graph.insert([2], [0], time=[most]).expired == 2
        assert graph.insert([0], [1], time=[0]).late == 1
        assert edges_of(graph) == {(2, 0): (most, 1.0)}
    with DynamicGraph(n_vertices=3, window=1) as graph:
        graph.insert([0, 1], [1, 2], time=[least, least])
        assert graph.num_edges == 2


@pytest.mark.parametrize("make", [lambda nat: nat, lambda nat: [nat], lambda nat: np.array([nat], object)])
def test_a_missing_date_of_pandas_is_refused(make):
    nat = pytest.importorskip("pandas").NaT
    with DynamicGraph(n_vertices=3, times="datetime64[ns]") as graph:
        with pytest.raises(InvalidBatch, match=r"time\[0\] is NaT; times run from .* without NaT"):
            graph.insert([0], [1], time=make(nat))
        with pytest.raises(InvalidBatch, match=r"time\[1\] is NaT"):
            graph.insert([0, 1], [1, 2], time=[np.datetime64(3, "s").item(), nat])
        with pytest.raises(InvalidOption, match="before is NaT"):
            graph.expire(nat)
        assert graph.epoch == 0


def test_one_time_for_all_and_graphs_that_grow():
    with DynamicGraph(times=True, keys="string") as graph:
        graph.insert(["a", "b"], ["b", "c"], time=3)
        graph.insert(["b"], ["c"], time=5)
        assert graph.neighbors(["b", "a"], time=True).time.tolist() == [5, 3]
        assert graph.delete(["b", "x"], ["c", "c"]).missing == 1
        assert graph.to_csr().time.tolist() == [3]


def test_vertices_without_edges_go_when_asked():
    with DynamicGraph(keys="string", reverse=True) as graph:
        graph.insert(["a", "b"], ["b", "c"])
        assert (graph.drop_isolated(), graph.epoch) == (0, 1)
        graph.add_vertices(["d"])
        graph.delete(["a"], ["b"])
        assert (graph.drop_isolated(), graph.epoch) == (2, 4)
        assert graph.vertices().tolist() == ["b", "c"]


def test_vertices_without_keys_stay():
    for make in (
        lambda: DynamicGraph(n_vertices=3, drop_isolated=True),
        lambda: DynamicGraph(drop_isolated=True).insert([0], [1]),
        lambda: DynamicGraph(n_vertices=3).drop_isolated(),
    ):
        with pytest.raises(InvalidOption, match="keys="):
            make()


def test_ids_are_refused_at_once_where_vertices_are_to_go():
    with DynamicGraph(drop_isolated=True) as graph:
        for first in (
            lambda: graph.execute(Operations(["insert"], [0], [1])),
            lambda: graph.add_vertices(3),
            lambda: graph.ingest({"src": [0], "dst": [1]}),
        ):
            with pytest.raises(InvalidOption, match="create the graph with keys="):
                first()
        assert (graph.epoch, graph.num_vertices, graph.keys) == (0, 0, "undecided")
        assert graph.execute(Operations(["insert"] * 2, ["a", "b"], ["b", "c"], keys="string")).report.inserted == 2
        graph.delete(["a"], ["b"])
        assert graph.vertices().tolist() == ["b", "c"]


@pytest.mark.parametrize("unit", ["Y", "M"])
def test_a_window_of_years_or_months_has_no_one_length(unit):
    window = np.timedelta64(3, unit)
    for times in (None, "datetime64[D]"):
        with pytest.raises(InvalidOption, match=rf"timedelta64\(3,'{unit}'\).* differ in length; give it in weeks"):
            DynamicGraph(n_vertices=2, times=times, window=window)
    with DynamicGraph(n_vertices=3, times="datetime64[M]", window=window) as graph:  # whole months
        first, last = np.datetime64("2020-01"), np.datetime64("2020-01") + window
        graph.insert([0], [1], time=first)
        assert graph.insert([1], [2], time=last - np.timedelta64(1, unit)).expired == 0
        assert graph.insert([1], [2], time=last).expired == 1


def test_what_cannot_have_times_yet():
    with DynamicGraph(n_vertices=3, times=True) as graph:
        graph.insert([0, 1], [1, 2], time=4)
        with pytest.raises(InvalidOption, match=r"kind\[1\] is \"insert\", operations have no times"):
            graph.execute(Operations(["degree", "insert"], [0, 0], [0, 2]))
        assert graph.execute(Operations(["delete", "degree"], [0, 0], [1, 0])).report.deleted == 1
        assert edges_of(graph) == {(1, 2): (4, 1.0)}


def test_results_follow_a_window():
    rng = fresh_rng()
    with DynamicGraph(n_vertices=30, window=25, directed=False) as graph:
        live = graph.maintain("connected_components")
        for now in range(0, 100, 5):
            graph.update(random_timed(rng, 30, 10, now, 5, False))
            assert (live.result().to_numpy() == graph.connected_components().to_numpy()).all()


BAD = [
    ({"time": None}, "without times"),
    ({"time": [1.5]}, "float64; times are integers"),
    ({"time": [1, 2]}, r"time has shape \(2,\)"),
    ({"time": ["2024"]}, "the graph has times=.int64.; give times of that dtype"),
    ({"time": [-(2**63)]}, r"time\[0\] is -9223372036854775808; times run from"),
    ({"time": np.array([2**63], np.uint64)}, r"time\[0\] is 9223372036854775808; times run"),
    ({"time": np.array([-(2**63)], ">i8")}, r"time\[0\] is -9223372036854775808; times run"),
    ({"time": np.array([2**63], ">u8")}, r"time\[0\] is 9223372036854775808; times run"),
    ({"time": np.array(["2024"], "datetime64[s]")}, "datetime64.*the graph has times='int64'"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_times_are_refused_and_change_nothing(given, message):
    with DynamicGraph(n_vertices=2, times=True) as graph:
        graph.insert([0], [1], time=7)
        with pytest.raises(InvalidBatch, match=message):
            graph.insert([1], [0], **given)
        assert (graph.epoch, edges_of(graph)) == (1, {(0, 1): (7, 1.0)})


@pytest.mark.parametrize("kind", ["int64", "datetime64[s]"])
@pytest.mark.parametrize("time", [None, [], np.array([], object), np.array([], np.int64)], ids=repr)
def test_an_empty_batch_has_no_times_to_be_of_another_kind(kind, time):
    with DynamicGraph(n_vertices=2, times=kind) as graph:
        assert (graph.insert([], [], time=time).epoch, graph.num_edges) == (1, 0)


def test_nanoseconds_of_pandas_are_kept():
    stamp = pd.Timestamp(1_700_000_000_123_456_789)
    with DynamicGraph(n_vertices=4, times="datetime64[ns]") as graph:
        for times in (stamp, [stamp], np.array([stamp], object), pd.Series([stamp])):
            graph.delete([0], [1])
            graph.insert([0], [1], time=times)
            assert graph.to_csr().time.tolist() == [stamp.value]
        graph.insert([0, 1], [1, 2], time=[stamp, datetime(2024, 5, 6)])
        assert graph.to_csr().time.astype("datetime64[us]").tolist()[1] == datetime(2024, 5, 6)
        with pytest.raises(InvalidBatch, match=r"time\[1\] is 1000-01-01.*cannot hold"):
            graph.insert([0, 1], [1, 2], time=[stamp, datetime(1000, 1, 1)])
    with (
        DynamicGraph(n_vertices=4, times="datetime64[us]") as graph,
        pytest.raises(InvalidBatch, match="cannot hold exactly"),
    ):
        graph.insert([0], [1], time=stamp)


def test_dates_that_do_not_fit():
    with DynamicGraph(n_vertices=2, times="datetime64[s]") as graph:
        for time, message in (([7], "give times of that dtype"), ([np.datetime64("NaT", "s")], "NaT"),
                              ([np.datetime64(1500, "ms")], "cannot hold exactly")):  # fmt: skip
            with pytest.raises(InvalidBatch, match=message):
                graph.insert([0], [1], time=np.array(time))
        with pytest.raises(InvalidOption, match="before is 7"):
            graph.expire(7)
        for several in ([np.datetime64(1, "s"), np.datetime64(2, "s")], np.array([], "datetime64[s]")):
            with pytest.raises(InvalidOption, match="before is .*; it must be one time"):
                graph.expire(several)
        assert graph.epoch == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": "float64"}, "times is 'float64'"),
        ({"times": "datetime64"}, "with a unit"),
        ({"window": 0}, "window is 0; it must be"),
        ({"window": 1.5}, "window is 1.5"),
        ({"window": 5, "times": "datetime64[s]"}, "as a timedelta"),
        ({"window": timedelta(seconds=1), "times": "int64"}, "times are integers"),
        ({"window": timedelta(milliseconds=1), "times": "datetime64[s]"}, "whole number of the unit"),
        ({"window": 5, "window_edges": 5}, "a graph has one window"),
        ({"window_edges": 0}, "window_edges is 0; it must be from 1"),
        ({"window_edges": 2**70}, "window_edges is 1180591620717411303424"),
        ({"window": 5, "times": False}, "a window is one of times"),
    ],
    ids=str,
)
def test_bad_options(options, message):
    with pytest.raises(InvalidOption, match=message):
        DynamicGraph(n_vertices=2, **options)


def test_graphs_without_times_take_none_and_give_none():
    with DynamicGraph(n_vertices=2) as graph:
        with pytest.raises(InvalidBatch, match="create it with times=True"):
            graph.insert([0], [1], time=7)
        for call in (lambda: graph.neighbors([0], time=True), lambda: graph.expire(7)):
            with pytest.raises(InvalidOption, match="create the graph with times=True"):
                call()
        assert (graph.epoch, graph.to_csr().time) == (0, None)


def test_vertices_without_edges_go_after_execute_and_delete_vertices_too():
    with DynamicGraph(keys="int64", drop_isolated=True) as graph:
        graph.insert([5, 6, 8, 8, 9], [6, 7, 9, 10, 10])
        assert graph.execute(Operations(["delete"], [5], [6], keys="int64")).report.deleted == 1
        assert sorted(graph.vertices().tolist()) == [6, 7, 8, 9, 10]
        assert graph.delete_vertices([7]).deleted == 1
        assert (sorted(graph.vertices().tolist()), graph.epoch) == ([8, 9, 10], 3)


def test_vertices_without_edges_go_with_the_batches_of_a_pipeline_only():
    gone = EdgeBatch(["a"], ["b"], op=-1, keys="string")
    with DynamicGraph(keys="string", drop_isolated=True) as graph:
        graph.insert(["a", "b"], ["b", "c"])
        graph.add_vertices(["d"])
        with graph.pipeline() as flight:
            flight.execute(Operations(["degree"], ["d"], [None], keys="string"))
        with graph.pipeline():
            pass
        assert (graph.vertices().tolist(), graph.epoch) == (["a", "b", "c", "d"], 2)
        # An exception of the user takes no batch back, so vertices leave all the same.
        with pytest.raises(ZeroDivisionError), graph.pipeline() as flight:
            flight.update(gone)
            _ = 1 / 0
        assert (graph.vertices().tolist(), graph.epoch) == (["b", "c"], 3)
        with graph.pipeline() as flight:
            flight.execute(Operations(["delete"], ["b"], ["c"], keys="string"))
        assert graph.num_vertices == 0
    with (
        pytest.raises(ZeroDivisionError) as told,
        DynamicGraph(keys="string", drop_isolated=True) as graph,
        graph.pipeline() as flight,
    ):
        flight.update(gone)
        graph.close()
        _ = 1 / 0
    assert "GraphClosed" in told.value.__notes__[0]
