"""Tables that are no graph: errors name column, row and value, and no graph is made."""

from __future__ import annotations

import datetime
from functools import partial
from itertools import product
from unittest.mock import patch

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sp

from mgraph import MAX_VERTICES, DynamicGraph, InvalidBatch, InvalidOption, ReadError, UnknownVertex

pl = pytest.importorskip("polars")


@pytest.fixture(autouse=True)
def nothing_is_made():
    """No graph is opened in this module."""
    with patch("mgraph.local.Here.begin", side_effect=AssertionError("a graph was made")):
        yield


GOOD = [0, 1, 2]

COLUMNS = [
    # what is in the column, and what is said of it
    ([0, None, 2], "row 1 is missing; every edge needs a value"),
    ([0.0, float("nan"), 2.0], "row 1 is missing"),
    (pd.array([0, 1, None], "Int64"), "row 2 is missing"),
    (pd.Categorical([0, None, 1]), "row 1 is missing"),
    ([0, -1, 2], "row 1 is -1; vertex ids run from 0 to 4294967294"),
    ([0, 1, MAX_VERTICES], f"row 2 is {MAX_VERTICES}; vertex ids run"),
    (np.array([0, 2**64 - 1, 1], np.uint64), f"row 1 is {2**64 - 1}; vertex ids run"),
    ([0, 2**80, 1], f"row 1 is {2**80}; vertex ids run"),
    ([0, 0.5, 1], "row 1 is 0.5; vertex ids are whole numbers"),
    ([0, 1, float("inf")], "row 2 is inf; vertex ids"),
    ([0, "ada", 2], "row 1 is 'ada'; vertex ids are whole numbers, and the column has values of int, str"),
    ([0, True, 2], "row 1 is True; vertex ids are whole numbers, and the column has values of bool, int"),
    (["ada", "grace", "ada"], "row 0 is 'ada'; vertex ids are whole numbers"),
    (pd.Categorical(["ada", "grace", "ada"]), "row 0 is 'ada'; vertex ids"),
    ([True, False, True], "row 0 is True; vertex ids are whole numbers, and the column is bool"),
    (pd.to_datetime(["2026-01-01"] * 3), "vertex ids are whole numbers"),
]


@pytest.mark.parametrize(("values", "message"), COLUMNS, ids=[message[:30] for _, message in COLUMNS])
@pytest.mark.parametrize("name", ["source", "target"])
def test_ids_in_frames(values, message, name):
    values = pd.Series(values, dtype=object) if isinstance(values, list) and len({*map(type, values)}) > 1 else values
    frame = pd.DataFrame({"source": GOOD, "target": GOOD} | {name: values})
    with pytest.raises(InvalidBatch) as raised:
        DynamicGraph.from_pandas(frame, keys=None)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"column {name!r}, row ")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([0, None, 2]), "row 1 is missing"),
        (pa.array([0, 1, None]).dictionary_encode(), "row 2 is missing"),
        (pa.array([0, -1, 2]), "row 1 is -1"),
        (pa.array([0, 2**63, 1], pa.uint64()), f"row 1 is {2**63}"),
        (pa.array([0.0, 0.5, 1.0]), "row 1 is 0.5"),
        (pa.array(["a", "b", "c"]), "row 0 is 'a'; vertex ids are whole numbers"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "row 0 is 'a'"),
        (pa.array([datetime.date(2026, 1, 1)] * 3), "vertex ids are whole numbers"),
        (pa.nulls(3), "row 0 is missing"),
    ],
    ids=str,
)
def test_ids_in_tables(values, message):
    with pytest.raises(InvalidBatch) as raised:
        DynamicGraph.from_arrow(pa.table({"source": GOOD, "target": values}), keys=None)
    assert message in str(raised.value)
    assert str(raised.value).startswith("column 'target', row ")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, None, 1.0], "column 'weight', row 1 is missing"),
        ([0.5, 1e39, 1.0], "column 'weight', row 1 is 1e+39; weights are stored as float32"),
        (["1", "2", "3"], "column 'weight', row 0 is '1'; weights are numbers"),
        ([1j, 2j, 3j], "column 'weight', row 0 is 1j; weights are numbers"),
    ],
    ids=str,
)
def test_weights(values, message):
    with pytest.raises(InvalidBatch) as raised:
        DynamicGraph.from_pandas(pd.DataFrame({"source": GOOD, "target": GOOD, "weight": values}), weight="weight")
    assert message in str(raised.value)


def test_columns_that_are_not_there_or_twice():
    frame = pd.DataFrame({"from": GOOD, "to": GOOD})
    there = "its columns are 'from', 'to'"
    with pytest.raises(InvalidBatch, match=f"the frame has no column 'source'; {there}; the ends are 'source'"):
        DynamicGraph.from_pandas(frame)
    with pytest.raises(InvalidBatch, match=f"the frame has no column 'w'; {there}$"):
        DynamicGraph.from_pandas(frame, "from", "to", "w")
    twice = pd.DataFrame([[0, 1, 2]], columns=["source", "target", "target"])
    with pytest.raises(InvalidBatch, match="the frame has 2 columns 'target'"):
        DynamicGraph.from_pandas(twice)
    table = pa.Table.from_arrays([pa.array(GOOD)] * 3, names=["source", "source", "target"])
    with pytest.raises(InvalidBatch, match="the table has 2 columns 'source'"):
        DynamicGraph.from_arrow(table)
    with pytest.raises(InvalidBatch, match="column 'from' is wanted twice"):
        DynamicGraph.from_pandas(frame, "from", "from")


def test_how_many_vertices_there_are():
    empty = pd.DataFrame({"source": [], "target": []})
    for frame in (empty, empty.astype("str"), empty.astype("int64")):
        with pytest.raises(InvalidBatch, match="there are 0 edges, so the number of vertices is not known; .* or keys"):
            DynamicGraph.from_pandas(frame)
    with pytest.raises(UnknownVertex, match="column 'target', row 1 is 7; the graph has 5 vertices, 0 to 4"):
        DynamicGraph.from_pandas(pd.DataFrame({"source": [0, 1], "target": [1, 7]}), n_vertices=5)
    with pytest.raises(InvalidBatch, match="column 'source', row 1 is 4000000000, the graph has 0 vertices"):
        DynamicGraph.from_pandas(pd.DataFrame({"source": [0, 4_000_000_000], "target": [1, 7]}), keys=None)
    with pytest.raises(InvalidOption, match="n_vertices is 'many'"):
        DynamicGraph.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), n_vertices="many")
    with pytest.raises(InvalidOption, match="weighted is False and a column of weights is named"):
        frame = pd.DataFrame({"source": [0], "target": [1], "w": [1.0]})
        DynamicGraph.from_pandas(frame, weight="w", weighted=False)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"source": [0, None, 2], "target": GOOD}, "column 'source', row 1 is missing"),
        ({"source": GOOD, "target": [0, 1, -2]}, "column 'target', row 2 is -2"),
        ({"source": GOOD, "target": [0.0, 0.5, 1.0]}, "column 'target', row 1 is 0.5"),
        ({"source": GOOD, "target": ["a", "b", "c"]}, "column 'target', row 0 is 'a'"),
        ({"source": GOOD, "to": GOOD}, "the frame has no column 'target'; its columns are 'source', 'to'"),
        ({"source": [], "target": []}, "there are 0 edges"),
        ({"source": [{}, 1, 2], "target": GOOD}, "column 'source' has the type Object"),
    ],
    ids=str,
)
def test_frames_of_polars(frame, message):
    made = pl.DataFrame(
        {name: pl.Series(values, dtype=pl.Object if {} in values else None) for name, values in frame.items()}
    )
    for each in (made, made.lazy()):
        with pytest.raises(InvalidBatch) as raised:
            DynamicGraph.from_polars(each, keys=None)
        assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 1], [0, -1]), "column 'target', row 1 is -1"),
        (([0.0, np.nan], [0, 1]), "column 'source', row 1 is missing"),
        (([0, 1], [0, 1], [1.0, np.nan]), "column 'weight', row 1 is missing"),
        (([0, 1], [0, 1], [1.0, 1e300]), r"column 'weight', row 1 is 1e\+300; weights are stored as float32"),
        (([0, 1], [True, False]), "column 'target', row 0 is True; vertex ids are whole numbers"),
        (([0, 1], [0]), "column 'target' has 1 rows and column 'source' has 2"),
        (([[0, 1]], [[1, 2]]), r"column 'source' has shape \(1, 2\)"),
        (([0, 1], [0, 1], [1.0]), "column 'weight' has 1 rows"),
    ],
    ids=str,
)
def test_arrays(arrays, message):
    with pytest.raises(InvalidBatch, match=message):
        DynamicGraph.from_dlpack(*map(np.array, arrays), keys=None)


def test_a_column_named_false_is_not_column_0():
    frame = pd.DataFrame([[0, 1]], columns=[False, True])
    with pytest.raises(InvalidBatch, match="the frame has no column 0; its columns are False, True"):
        DynamicGraph.from_pandas(frame, source=0, target=1)
    with pytest.raises(InvalidBatch, match="no column 'source'; its columns are <NA>, 1"):
        DynamicGraph.from_pandas(pd.DataFrame([[0, 1]], columns=pd.Index([pd.NA, 1], dtype=object)))


def test_what_is_no_name():
    frame, graph = pd.DataFrame({"source": GOOD, "target": GOOD}), nx.path_graph(2)
    for bad in (pd.NA, pd.Series(["a"])):
        for convert, edges in ((DynamicGraph.from_pandas, frame), (DynamicGraph.from_networkx, graph)):
            with pytest.raises(InvalidOption, match="weight is a .*; of a table it is the name of a column"):
                convert(edges, weight=bad)


def test_what_is_no_option():
    frame, graph, bad = pd.DataFrame({"source": GOOD, "target": GOOD}), nx.path_graph(2), np.ones(2)
    calls = [partial(DynamicGraph.from_pandas, frame), partial(DynamicGraph.from_networkx, graph)]
    for call, option in product(calls, ("weighted", "directed", "window", "sync", "times")):
        with pytest.raises(InvalidOption, match=f"{option} is array"):
            call(**{option: bad})
    with pytest.raises(InvalidOption, match="times is {0: 'a'}"):
        DynamicGraph(times={0: "a"})


def test_what_is_no_table():
    with pytest.raises(InvalidBatch, match="from_polars takes a polars DataFrame, got pandas.DataFrame"):
        DynamicGraph.from_polars(pd.DataFrame({"source": GOOD, "target": GOOD}))
    with pytest.raises(InvalidBatch, match="target is a list, which has no DLPack interface"):
        DynamicGraph.from_dlpack(np.array(GOOD), GOOD)
    for convert in (DynamicGraph.from_pandas, DynamicGraph.from_arrow, DynamicGraph.from_networkx):
        with pytest.raises(InvalidBatch, match="got list"):
            convert([(0, 1)])
    with pytest.raises(InvalidBatch, match="takes a SciPy sparse matrix, got numpy.ndarray"):
        DynamicGraph.from_scipy(np.eye(3))


def test_files(tmp_path):
    for read in (DynamicGraph.from_csv, DynamicGraph.from_parquet):
        with pytest.raises(TypeError, match="a file's path is a str or a Path, got list; stream and ingest take lists"):
            read([tmp_path / "a", tmp_path / "b"])
    bad = pa.table({"source": GOOD, "target": [0, None, 2]})
    parquet.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(ReadError, match=r"bad\.parquet: column 'target', row 1 is missing"):
        DynamicGraph.from_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ReadError, match=r"bad\.parquet: the file has no column 'from'; its columns are 'source'"):
        DynamicGraph.from_parquet(tmp_path / "bad.parquet", "from")
    for name, text, message in [
        ("missing.csv", "source,target\n0,1\n,2\n", "column 'source', row 1 is missing"),
        ("ragged.csv", "source,target\n0,1\n1,2,3\n", "Expected 2 columns, got 3"),
        ("twice.csv", "source,target,target\n0,1,2\n", "the file has 2 columns 'target'"),
        ("other.csv", "a;b\n0;1\n", "the file has no column 'source'; its columns are 'a;b'"),
        ("empty.csv", "", "Empty CSV file"),
        ("headed.csv", "source,target\n", "0 edges, so the number of vertices is not known"),
        ("unended.csv", "source,target", "0 edges, so the number of vertices is not known"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(ReadError) as raised:
            DynamicGraph.from_csv(tmp_path / name)
        assert message in str(raised.value)
        assert str(raised.value).startswith(str(tmp_path / name))
    for convert in (DynamicGraph.from_csv, DynamicGraph.from_parquet):
        with pytest.raises(ReadError, match="none"):
            convert(tmp_path / "none")


TEXT_AND_NUMBERS = [
    ("auto", 1, "column 'target', row 70000 is 'ada', and column 'source' has whole numbers; "),
    ("int64", 0, "column 'source', row 70000 is 'ada', and column 'target' has whole numbers; "),
    ("int64", 2, "column 'source', row 70000 is 'ada', which is no whole number; "),
    (None, 2, "column 'source', row 70000 is 'ada', which is no whole number; "),
]


@pytest.mark.parametrize(("keys", "end", "message"), TEXT_AND_NUMBERS)
def test_text_where_whole_numbers_are(tmp_path, keys, end, message):
    """Arrow reads the column as text from its first row on; the row that made it so may be many blocks later."""
    rows = [[str(100_000_000 + i), str(-i)] for i in range(70_000)]
    rows += [["ada" if end != 1 else "7", "ada" if end != 0 else "8"], ["grace", "9"] if end != 1 else ["9", "grace"]]
    for name, between in (("a.csv", ","), ("a.txt", " ")):
        (tmp_path / name).write_text("\n".join(map(between.join, [["source", "target"], *rows])))
        with pytest.raises(ReadError) as raised:
            DynamicGraph.read(tmp_path / name, "source", "target", keys=keys)
        assert str(raised.value) == f'{tmp_path / name}: {message}keys="string" reads both ends as text'


def test_networkx():
    with pytest.raises(InvalidBatch, match=r"nodes\[1\] is 'ada'; vertices are whole numbers or strings"):
        DynamicGraph.from_networkx(nx.Graph([(0, "ada")]))
    with pytest.raises(InvalidBatch, match=r"nodes\[0\] is -1"):
        DynamicGraph.from_networkx(nx.Graph([(-1, 0)]), keys=None)
    with pytest.raises(InvalidBatch, match=r"nodes\[0\] is \(0, 0\).*convert_node_labels_to_integers"):
        DynamicGraph.from_networkx(nx.grid_2d_graph(2, 2))
    with pytest.raises(
        InvalidBatch, match=r"nodes\[1\] is 1; the graph's keys are strings.*convert_node_labels_to_int"
    ):
        DynamicGraph.from_networkx(nx.Graph([("ada", 1)]))
    for kind, simple in ((nx.MultiGraph, "Graph"), (nx.MultiDiGraph, "DiGraph")):
        with pytest.raises(InvalidBatch, match=rf"may have parallel edges; networkx\.{simple}\(graph\)"):
            DynamicGraph.from_networkx(kind([(0, 1)]))
    partly = nx.DiGraph([(0, 1), (1, 2)])
    partly.edges[0, 1]["km"] = 3
    with pytest.raises(InvalidBatch, match=r"edge \(1, 2\) has no attribute 'km'"):
        DynamicGraph.from_networkx(partly, "km")
    partly.edges[1, 2]["km"] = "far"
    with pytest.raises(InvalidBatch, match="column 'km', row 1 is 'far'; weights are numbers"):
        DynamicGraph.from_networkx(partly, "km")
    isolated = nx.Graph()
    isolated.add_nodes_from([0, 9])
    with pytest.raises(UnknownVertex, match="node 9 is in the graph, and n_vertices is 5"):
        DynamicGraph.from_networkx(isolated, n_vertices=5)


def test_scipy():
    with pytest.raises(InvalidBatch, match=r"the matrix has shape \(2, 3\)"):
        DynamicGraph.from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(InvalidBatch, match="column 'data', row 1 is missing"):
        DynamicGraph.from_scipy(sp.csr_array([[0.0, 1.0], [np.nan, 0.0]]), weighted=True)
    with pytest.raises(InvalidBatch, match="column 'data', row 0 is 1j; weights are numbers"):
        DynamicGraph.from_scipy(sp.csr_array([[0, 1j], [0, 0]]), weighted=True)


def test_keys_in_frames():
    for column, message in (
        ([1, None, 3], "row 1 is missing; every vertex needs a key"),
        (["a", None, "c"], "row 1 is missing"),
        ([2**62, 0.5, 1], "row 1 is 0.5; vertices are whole numbers or strings"),
        ([-1, "b", 2], "row 1 is 'b'; vertices are whole numbers or strings"),
        (["a", 2, "c"], "row 1 is 2; the graph's keys are strings"),
    ):
        frame = pd.DataFrame({"source": pd.Series(column, dtype=object), "target": ["x"] * 3 if "a" in column else -1})
        with pytest.raises(InvalidBatch) as raised:
            DynamicGraph.from_pandas(frame)
        assert str(raised.value).startswith(f"column 'source', {message}")
    with pytest.raises(InvalidBatch, match="column 'source', row 0 is 0; the graph's keys are strings"):
        DynamicGraph.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), keys="string")
    with pytest.raises(InvalidOption, match="leave out n_vertices"):
        DynamicGraph.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), keys="int64", n_vertices=2)
