"""One set of names for all calls: what a graph gives out comes back equal by every way in, and nothing is lost."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidBatch, InvalidOption
from mgraph.sources import Numbered

pl = pytest.importorskip("polars")

N = 12


def filled(kind: str) -> DynamicGraph:
    """A graph with weights, times, keys or directions as `kind` says."""
    rng = fresh_rng()
    options: dict[str, Any] = {"directed": "undirected" not in kind, "weighted": "weighted" in kind}
    if "times" in kind:
        options["times"] = "datetime64[ms]" if "dates" in kind else True
    src, dst = rng.integers(0, N, (2, 30))
    if "strings" in kind:
        src, dst = (np.array([f"v{i}" for i in end], object) for end in (src, dst))
    elif "int64" in kind:
        src, dst = src * 10**12 - 5, dst * 10**12 - 5
    elif "ids" in kind:
        options["n_vertices"] = N
    time = rng.integers(0, 10**6, 30)
    graph = DynamicGraph(**options)
    graph.insert(
        src, dst,
        rng.random(30, np.float32) if options["weighted"] else None,
        (time.astype("datetime64[ms]") if "dates" in kind else time) if "times" in kind else None,
    )  # fmt: skip
    return graph


KINDS = [
    "ids", "ids weighted", "ids weighted times", "int64 weighted", "strings weighted times dates",
    "ids undirected weighted", "strings undirected", "ids times dates",
]  # fmt: skip


def edges(graph: DynamicGraph) -> pd.DataFrame:
    """The edges in an order of their own; of an undirected graph with the lesser end first."""
    frame = graph.to_pandas()
    if not graph.directed:
        ends = frame[["source", "target"]]
        frame["source"], frame["target"] = ends.min(axis=1), ends.max(axis=1)
    return frame.sort_values(["source", "target"], ignore_index=True)


def options_of(graph: DynamicGraph) -> dict[str, Any]:
    found = {"directed": graph.directed, "weighted": graph.weighted}
    if graph._options.times is not None:
        found["times"] = graph._options.times
    if graph.keys is None:
        found["n_vertices"] = N
    else:
        found["keys"] = graph.keys
    return found


OUT = {
    "pandas": lambda graph, folder: graph.to_pandas(),
    "renamed": lambda graph, folder: graph.to_pandas().rename(columns={"source": "src", "target": "dst"}),
    "polars": lambda graph, folder: graph.to_polars(),
    "lazy": lambda graph, folder: graph.to_polars().lazy(),
    "arrow": lambda graph, folder: graph.to_arrow(),
    "mapping": lambda graph, folder: dict(graph.to_pandas()),
    "parquet": lambda graph, folder: written(folder / "a.parquet", graph),
    "csv": lambda graph, folder: written(folder / "a.csv", graph),
    "npz": lambda graph, folder: written(folder / "a.npz", graph),
}


def written(path: Path, graph: DynamicGraph) -> Path:
    table = graph.to_arrow()
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        columns = {name: column.to_numpy() for name, column in graph.to_pandas().items()}
        np.savez(path, **{name: c.astype(str) if c.dtype == object else c for name, c in columns.items()})
    return path


def new(graph: DynamicGraph, store: Any = None) -> DynamicGraph:
    return DynamicGraph(**options_of(graph), store=store)


def changed(call: str) -> Any:
    def way(graph: DynamicGraph, table: Any, folder: Path) -> DynamicGraph | None:
        if isinstance(table, Path) and call in ("insert", "update"):
            return None
        made = new(graph)
        data = [table] if call == "ingest" and not isinstance(table, Path) else table
        getattr(made, call)(data)
        return made

    return way


def followed(graph: DynamicGraph, table: Any, folder: Path) -> DynamicGraph:
    made = new(graph, folder / "store")
    assert made.follow(Numbered("days", [(0, table)])) == 1
    return made


def created(graph: DynamicGraph, table: Any, folder: Path) -> DynamicGraph:
    options = options_of(graph)
    make = {
        pd.DataFrame: DynamicGraph.from_pandas, pl.DataFrame: DynamicGraph.from_polars,
        pl.LazyFrame: DynamicGraph.from_polars, pa.Table: DynamicGraph.from_arrow,
    }.get(type(table))  # fmt: skip
    if make is not None:
        return make(table, **options)
    if isinstance(table, Path):
        return DynamicGraph.read(table, **options)
    return DynamicGraph.from_pandas(pd.DataFrame(table), **options)


IN = {name: changed(name) for name in ("insert", "update", "ingest", "stream")}
IN |= {"follow": followed, "from": created}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way_in", IN)
def test_what_a_graph_gives_out_comes_back_by_every_way_in(kind, way_in, tmp_path):
    with filled(kind) as graph:
        want = edges(graph)
        for number, (name, out) in enumerate(OUT.items()):
            if name == "npz" and "strings" in kind:
                continue  # strings of NumPy have a length
            (folder := tmp_path / str(number)).mkdir()
            made = IN[way_in](graph, out(graph, folder), folder)
            if made is None:
                continue
            with made:
                pd.testing.assert_frame_equal(edges(made), want)


@pytest.mark.parametrize("kind", KINDS)
def test_networkx_and_scipy_come_back(kind):
    with filled(kind) as graph:
        want, named = edges(graph), {}
        if graph.weighted:
            named["weight"] = "weight"
        if graph._options.times is not None:
            named["time"] = "time"
        options = options_of(graph)
        options.pop("weighted")
        with DynamicGraph.from_networkx(graph.to_networkx(), **named, **options) as made:
            pd.testing.assert_frame_equal(edges(made), want)
        if graph.keys is None and not graph._options.times:
            both = DynamicGraph.from_scipy(graph.to_scipy(), weighted=graph.weighted, directed=graph.directed)
            with both:
                pd.testing.assert_frame_equal(edges(both), want)


def test_a_column_that_is_not_used_is_named():
    frame = pd.DataFrame({"source": [0], "target": [1], "weight": [2.5], "op": [1], "time": [3], "note": ["x"]})
    with DynamicGraph(n_vertices=3) as graph:
        for call, unused in (
            (graph.insert, ("weight", "op", "time")), (graph.delete, ("op",)),
            (graph.update, ("weight", "time")), (graph.stream, ("weight", "time")),
        ):  # fmt: skip
            with pytest.warns(UserWarning, match="not used") as warned:
                call(frame)
            assert [str(one.message).split()[1] for one in warned] == [f"'{name}'" for name in unused]
            assert {one.filename for one in warned} == {__file__}
        with pytest.warns(UserWarning, match="column 'weight' of the source was not used"):
            graph.ingest(lambda rank, size, step: frame[["source", "target", "weight"]] if step == 0 else None)
        with pytest.raises(InvalidBatch, match="the graph is unweighted"):
            graph.insert(frame[["source", "target", "weight"]], weight="weight")
    with pytest.warns(UserWarning, match="not used") as warned, DynamicGraph.from_pandas(frame) as graph:
        assert not graph.weighted
    assert len(warned) == 3
    quiet = DynamicGraph.from_pandas(frame[["source", "target", "weight"]], weighted=False)
    with quiet, DynamicGraph.from_pandas(frame[["source", "target", "weight"]], weighted=True) as graph:
        assert graph.weights([0], [1]).tolist() == [2.5]


def test_weights_in_a_column_of_another_name_are_not_left_out_in_silence(tmp_path):
    frame = pd.DataFrame({"source": [0], "target": [1], "cost": [2.5]})
    (path := tmp_path / "costs.csv").write_text("source,target,cost\n0,1,2.5\n")
    why = "has no column 'weight', and so its edges have the weight 1; weight= names another column"
    with DynamicGraph(n_vertices=3, weighted=True) as graph:
        for call, given, what in (
            (graph.insert, frame, "table"), (graph.update, frame, "table"), (graph.stream, frame, "table"),
            (graph.ingest, [str(path)], "source"),
        ):  # fmt: skip
            with pytest.warns(UserWarning, match=f"the {what} {why}") as warned:
                call(given)
            assert [one.filename for one in warned] == [__file__]
        graph.insert(frame[["source", "target"]])  # nothing is left out
        graph.delete(frame)
        graph.insert(frame, weight="cost")
        assert graph.weights([0], [1]).tolist() == [2.5]
    for make, given, what in (
        (DynamicGraph.from_pandas, frame, "table"), (DynamicGraph.from_csv, path, "file"),
        (DynamicGraph.from_networkx, nx.DiGraph([(0, 1, {"cost": 2.5})]), "graph"),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=f"the {what} {why}".replace("column", "(column|attribute)")):
            make(given, weighted=True).close()
        make(given, weight="cost").close()


def test_weights_are_read_by_default():
    frame = pd.DataFrame({"source": [0, 1], "target": [1, 2], "weight": [0.5, 7.0]})
    with DynamicGraph(n_vertices=3, weighted=True) as graph:
        graph.insert(frame)
        assert graph.weights([0, 1], [1, 2]).tolist() == [0.5, 7.0]
        graph.delete(pd.DataFrame({"src": [0], "dst": [1]}))
        assert graph.num_edges == 1


def test_old_spellings_are_deprecated_and_still_work(tmp_path):
    frame = pd.DataFrame({"from": [0, 1], "to": [1, 2], "km": [1.5, 2.5]})
    names = {"src": "from", "dst": "to", "weight": "km"}
    with DynamicGraph(n_vertices=3, weighted=True, store=tmp_path / "store") as graph:
        with pytest.warns(DeprecationWarning, match="columns= is deprecated"):
            graph.ingest([frame], columns=names)
        assert graph.weights([0, 1], [1, 2]).tolist() == [1.5, 2.5]
        with pytest.warns(DeprecationWarning, match="stream.source=.* is deprecated"):
            assert graph.stream(source=([2], [0])).inserted == 1
        with pytest.warns(DeprecationWarning, match="follow.source=.* is deprecated"):
            assert graph.follow(source=Numbered("days", [(0, ([0], [2]))])) == 1
        assert graph.stream(frame, source="from", target="to", weight="km").updated == 2
        with pytest.raises(InvalidOption, match="weight is a list; of a table it is the name of a column"):
            graph.insert(frame, source="from", target="to", weight=[1.0, 2.0])


def test_times_as_pandas_understands_them():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    utc = np.array(["2026-01-05T10:00", "2026-01-05T11:30"], "datetime64[s]")
    aware = pd.to_datetime(["2026-01-05 12:00", "2026-01-05 13:30"]).tz_localize(zone)
    for given in (
        ["2026-01-05 10:00", "2026-01-05 11:30"], ["2026-01-05T12:00+02:00", "2026-01-05T13:30+02:00"], aware,
        pd.Series(aware), list(aware), aware.to_pydatetime().tolist(), pa.array(aware), pl.Series(list(aware)),
        pd.Series(["2026-01-05 10:00", "2026-01-05 11:30"], dtype="string"),
    ):  # fmt: skip
        with DynamicGraph(n_vertices=3, window="1h") as graph:
            report = graph.insert([0, 1], [1, 2], time=given)
            assert (report.inserted, graph.num_edges) == (1, 1)
            assert graph.to_csr().time.tolist() == utc[1:].astype("datetime64[ns]").tolist()
    with DynamicGraph(n_vertices=3, times="datetime64[s]") as graph:
        for bad, row in ((["2026-01-05", "not a day"], "not a day"), (["2026-01-05", None], r"time\[1\] is missing")):
            with pytest.raises(InvalidBatch, match=row):
                graph.insert([0, 1], [1, 2], time=bad)
    for bad in ("1 month", "1M", "h", "1.5h", ""):
        with pytest.raises(InvalidOption, match="window is"):
            DynamicGraph(n_vertices=3, window=bad)


def test_a_loop_of_an_undirected_graph_counts_once():
    graph = nx.Graph()
    graph.add_edge(0, 0, weight=2.0)
    graph.add_edge(0, 1, weight=3.0)
    with DynamicGraph.from_networkx(graph, "weight", directed=True, combine="sum") as made:
        assert made.weights([0, 0, 1], [0, 1, 0]).tolist() == [2.0, 3.0, 3.0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "bool", "float32", "uint64"])
def test_sums_of_a_small_dtype(dtype):
    import scipy.sparse as sp

    ones = sp.coo_array((np.ones(300, dtype), (np.zeros(300, int), np.ones(300, int))), shape=(2, 2))
    with DynamicGraph.from_scipy(ones, weighted=True) as graph:
        assert graph.weights([0], [1]).tolist() == [300.0]


def test_names_travel_to_workers():
    from mgraph.tables.names import Names

    names = Names("a", 3, reads=("op",))
    assert pickle.loads(pickle.dumps(names)) == names == Names(**vars(names))
