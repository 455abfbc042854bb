"""Columns of times: from tables into graphs and back."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from mgraph import DynamicGraph, InvalidBatch, InvalidOption, ReadError

pandas = pytest.importorskip("pandas")
arrow = pytest.importorskip("pyarrow")

DATES = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[us]")
TIMES = {"int64": np.array([-5, 7, 2**62]), "datetime64[us]": DATES}


def frame(times: np.ndarray, **more: list) -> pandas.DataFrame:
    return pandas.DataFrame({"source": [0, 1, 2], "target": [1, 2, 0], **more, "time": times})


@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize("weight", [None, "weight"])
def test_there_and_back(dtype, weight):
    given = frame(TIMES[dtype], **({} if weight is None else {"weight": np.array([1, 2, 3], np.float32)}))
    for graph in (
        DynamicGraph.from_pandas(given, weight=weight, time="time", n_vertices=3),
        DynamicGraph.from_arrow(arrow.Table.from_pandas(given), weight=weight, time="time", n_vertices=3),
    ):
        with graph:
            pandas.testing.assert_frame_equal(graph.to_pandas(), given)
            assert graph.to_arrow().to_pandas().equals(given)
            renamed = graph.to_pandas(time="when")
            assert renamed.columns[-1] == "when"


def test_files(tmp_path):
    given = frame(DATES)
    given.to_parquet(tmp_path / "edges.parquet")
    given.to_csv(tmp_path / "edges.csv", index=False)
    with DynamicGraph.from_parquet(tmp_path / "edges.parquet", time="time") as graph:
        assert (graph.to_pandas()["time"] == DATES).all()
    with DynamicGraph.from_csv(tmp_path / "edges.csv", time="time", window=timedelta(days=2)) as graph:
        assert (graph.to_pandas()["time"] == DATES[1:]).all()
    with DynamicGraph(n_vertices=3, times="datetime64[ns]") as graph:
        assert [one.inserted for one in graph.ingest([str(tmp_path / "edges.parquet")])] == [3]
        assert (graph.to_pandas()["time"] == DATES).all()
    given.rename(columns={"source": "src", "target": "dst"}).to_parquet(tmp_path / "named.parquet")
    with DynamicGraph(n_vertices=3) as graph:
        with pytest.warns(UserWarning, match="'time' of the source was not used"):
            graph.ingest([str(tmp_path / "named.parquet")])
        assert graph.num_edges == 3


@pytest.mark.parametrize("dtype", TIMES)
def test_of_networkx_and_dlpack(dtype):
    nx = pytest.importorskip("networkx")
    made, times = nx.DiGraph(), TIMES[dtype]
    for u, v, t in zip([0, 1, 2], [1, 2, 0], times.tolist(), strict=True):
        made.add_edge(u, v, when=t, length=1.5)
    with DynamicGraph.from_networkx(made, "length", time="when") as graph:
        assert (graph.to_pandas()["time"] == times).all()
        assert (graph.to_pandas()["weight"] == 1.5).all()
        assert graph.to_networkx().edges[0, 1] == {"weight": 1.5, "time": times[0]}
        with DynamicGraph.from_networkx(graph.to_networkx("km", "when"), "km", time="when") as back:
            assert back.to_pandas().equals(graph.to_pandas())
        with pytest.raises(InvalidOption, match="weight and time are both 'a'"):
            graph.to_networkx("a", "a")
    both = nx.Graph()
    both.add_edge("a", "b", when=times[1].item())
    with DynamicGraph.from_networkx(both, time="when", directed=True) as graph:
        assert graph.to_pandas()["time"].tolist() == [times[1]] * 2
    both.add_edge("b", "c")
    with pytest.raises(InvalidBatch, match=r"edge \('b', 'c'\) has no attribute 'when'; every edge needs a time"):
        DynamicGraph.from_networkx(both, time="when")
    if dtype == "int64":
        ends = np.array([0, 1, 2]), np.array([1, 2, 0])
        with DynamicGraph.from_dlpack(*ends, time=times) as graph:
            assert (graph.to_pandas()["time"] == times).all()
        with pytest.raises(InvalidBatch, match="column 'time' has 2 rows"):
            DynamicGraph.from_dlpack(*ends, time=times[:2])


def test_of_edge_lists(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("# from to weight time\n0 1 .5 30\n1 2 .5 10\n")
    with DynamicGraph.read(path, weight=2, time=3) as graph:
        assert graph.to_pandas()["time"].tolist() == [30, 10]
    with pytest.raises(InvalidOption, match="time is 3; a file of the format metis has no columns"):
        (tmp_path / "edges.metis").write_text("2 1\n2\n1\n")
        DynamicGraph.read(tmp_path / "edges.metis", time=3)


def test_bad_columns(tmp_path):
    missing, zoned = DATES.copy(), pandas.Series(DATES).dt.tz_localize("UTC")
    missing[1] = "NaT"
    for times, message in ((missing, "'time', row 1 is"), (zoned, "no time zones"), ([1.5, 2, 3], "float64"),
                           (["a", "b", "c"], "column 'time'")):  # fmt: skip
        for make in (DynamicGraph.from_pandas, lambda f, **how: DynamicGraph.from_arrow(arrow.table(f), **how)):
            if times is zoned and make is not DynamicGraph.from_pandas:
                continue  # Arrow gives what is in UTC without its zone
            with pytest.raises(InvalidBatch, match=message):
                make(frame(times), time="time")
    with pytest.raises(InvalidBatch, match="wanted twice"):
        DynamicGraph.from_pandas(frame(DATES), weight="time", time="time")
    with pytest.raises(InvalidOption, match="times is False"):
        DynamicGraph.from_pandas(frame(DATES), time="time", times=False)
    frame(missing).to_parquet(tmp_path / "edges.parquet")
    with pytest.raises(ReadError, match="row 1"):
        DynamicGraph.from_parquet(tmp_path / "edges.parquet", time="time")
    with DynamicGraph.from_pandas(frame(DATES), time="time") as graph, pytest.raises(InvalidOption, match="different"):
        graph.to_pandas(time="source")


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "5m"])
def test_dates_of_every_unit_go_through_every_table(unit):
    times = np.array([3, 7000], f"datetime64[{unit}]")
    with DynamicGraph(n_vertices=3, times=times.dtype) as graph:
        graph.insert([0, 1], [1, 2], time=times)
        for kind in ("pandas", "arrow", "polars"):
            if unit == "ps":
                with pytest.raises(InvalidOption, match=r"the time .*003 is not a whole number of datetime64\[ns\]"):
                    getattr(graph, f"to_{kind}")()
                continue
            table = getattr(graph, f"to_{kind}")()
            with getattr(DynamicGraph, f"from_{kind}")(table, n_vertices=3, times=times.dtype) as again:
                assert again.to_csr().time.dtype == times.dtype
                assert again.to_csr().time.tolist() == times.tolist()
