"""Values that no column of a graph has: each is refused by name, and nothing is made or changed."""

from __future__ import annotations

from decimal import Decimal

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, Operations, ReadError

pl = pytest.importorskip("polars")

TINY = np.array([1, np.inf], np.float16)  # whose largest number is less than the limits


@pytest.mark.parametrize(
    ("values", "keys", "message"),
    [
        (TINY, "int64", r"src\[1\] is inf; keys are whole numbers"),
        (TINY, "auto", r"src\[1\] is inf; keys are whole numbers"),
        (np.array([0, np.timedelta64(5, "ns")], object), "int64", r"src\[1\] is 5 nanoseconds; the graph"),
        (np.array([0, Decimal("snan")], object), "int64", r"src\[1\] is missing"),
        ([0, Decimal(2**63)], "int64", r"src\[1\] is 9223372036854775808; keys run from"),
        ([0, Decimal("1e999999999")], "int64", r"src\[1\] is Decimal"),
        (np.array([b"a", b"b"], object), "string", r"src\[0\] is b'a'; the graph's keys are strings"),
        (np.array(["a", b"b"], object), "string", r"src\[1\] is b'b'; the graph's keys are strings"),
        ([True, False], "int64", r"src\[0\] is True, and the column is bool; the graph's keys are int64"),
        (np.array(["2026"] * 2, "M8[D]"), "int64", r"src\[0\] is 2026-01-01, and the column is"),
        ({1, 2}, "int64", "src has type set and 0 dimensions; keys must be in a 1-dimensional array"),
        ({1, 2}, "string", "src has type set and 0 dimensions; keys must be"),
        ({1, 2}, "auto", "src has type set and 0 dimensions; keys must be"),
    ],
)
def test_keys(values, keys, message):
    with DynamicGraph(keys=keys) as graph:
        with pytest.raises(InvalidBatch, match=message):
            graph.insert(values, ["x", "y"] if keys == "string" else [2, 3])
        assert (graph.num_vertices, graph.num_edges, graph.epoch) == (0, 0, 0)


def test_integers_that_python_does_not_write():
    huge = 10**5000  # more than 4,300 digits
    for make in (
        lambda: EdgeBatch([huge], [1]),
        lambda: EdgeBatch([-huge], [1], keys="int64"),
        lambda: EdgeBatch([huge], ["a"], keys="string"),
        lambda: EdgeBatch(huge, [1]),
        lambda: EdgeBatch([0], [1], [huge]),
        lambda: EdgeBatch([0], [1], op=huge),
        lambda: EdgeBatch([0], [1], op=[huge]),
        lambda: EdgeBatch([0], [1], time=huge),
        lambda: Operations([huge], [0], [1]),
    ):
        with pytest.raises(InvalidBatch, match=r"(src|weight|op|time|kind)(\[0\])? is an integer of 16610 bits"):
            make()


def test_decimals_are_exact_keys():
    keys = [2**53 + 1, -(2**63)]
    for kind in (pa.decimal128(38, 0), pa.decimal128(21, 2)):
        column = pa.array(map(Decimal, keys), kind)
        with DynamicGraph(keys="int64") as graph:
            graph.insert(column, column)
            assert graph.vertices().tolist() == keys


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.to_timedelta([1, 2]), "row 0 is 1 nanosecond"),
        (pa.array([[1], [2]]), r"row 0 is \[1\]"),
        (pl.Series(["a", "b"], dtype=pl.Categorical), "row 0 is 'a'; vertex ids are whole numbers"),
        (pl.Series([1, 2], dtype=pl.Int128), "cannot be read by Arrow"),
        (TINY, "row 1 is inf; vertex ids"),
    ],
    ids=lambda value: str(getattr(value, "dtype", ""))[:12],
)
def test_ids(values, message):
    library = pl if isinstance(values, pl.Series) else pa if isinstance(values, pa.Array) else pd
    convert = {pl: DynamicGraph.from_polars, pa: DynamicGraph.from_arrow, pd: DynamicGraph.from_pandas}[library]
    frame = {pl: pl.DataFrame, pa: pa.table, pd: pd.DataFrame}[library]({"source": [0, 1], "target": values})
    with pytest.raises(InvalidBatch, match=message):
        convert(frame, keys=None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, True], "row 1 is True; weights are numbers"),
        ([1.0, float("nan")], "row 1 is missing"),
        ([1, 10**400], "row 1 is 10+; weights are stored as float32"),
    ],
)
def test_weights_among_objects(values, message):
    made = nx.DiGraph()
    made.add_weighted_edges_from([(0, 1, values[0]), (1, 2, values[1])], weight="km")
    with pytest.raises(InvalidBatch, match=f"column 'km', {message}"):
        DynamicGraph.from_networkx(made, "km")


@pytest.mark.parametrize("ends", [(None, "to"), ("from", None)])
def test_an_end_without_a_column(ends):
    frame = pd.DataFrame({"from": [0], "to": [1], "km": [2]})
    for convert, table in (
        (DynamicGraph.from_pandas, frame),
        (DynamicGraph.from_arrow, pa.table(frame)),
        (DynamicGraph.from_polars, pl.DataFrame(frame.to_dict("list"))),
    ):
        with pytest.raises(InvalidBatch, match="no column '(source|target)'; its columns are 'from', 'to', 'km'"):
            convert(table, *ends, "km")  # the weights are not taken for an end


def test_what_is_no_table():
    with pytest.raises(InvalidBatch, match="the Int64Array cannot be made an Arrow table"):
        DynamicGraph.from_arrow(pa.array([1, 2]))


def test_matrices_and_their_vertices(tmp_path):
    with pytest.raises(InvalidOption, match="n_vertices is 5; a graph of a matrix has a vertex a row, 3"):
        DynamicGraph.from_scipy(sp.eye_array(3), n_vertices=5)
    with pytest.raises(CapacityError, match=f"rows of the matrix is {2**33}; 32-bit ids allow"):
        DynamicGraph.from_scipy(sp.coo_array((2**33, 2**33)))
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix coordinate pattern general\n{2**33} {2**33} 1\n1 2\n")
    with pytest.raises(CapacityError, match=f"rows of the matrix is {2**33}"):
        DynamicGraph.read(tmp_path / "a.mtx")


def test_sizes_that_no_memory_holds_are_refused_before_anything_is_allocated(tmp_path, monkeypatch):
    monkeypatch.setattr("mgraph.budget.host_memory_limit", lambda: 1 << 33)
    n, matrix = 4_000_000_000, tmp_path / "a.mtx"
    with pytest.raises(
        CapacityError, match=f"are needed for the {n} rows of the matrix, and the machine has {1 << 33}"
    ):
        DynamicGraph.from_scipy(sp.coo_array((n, n)))
    for sizes, error, message in (
        (f"{n} {n} 1", CapacityError, f"needed for the {n} rows of the matrix, and the machine has {1 << 33}"),
        (f"3 3 {n}", ReadError, f"line 2 announces {n} entries, and there are 68 bytes"),
        (f"{10**22} {10**22} 1", ReadError, "a.mtx: line 2 is '1000"),
        ("3 3 1\n4 1", ReadError, "a.mtx: line 2 announces 1 rows, and 2 follow"),
    ):
        matrix.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{sizes}\n2 1\n")
        with pytest.raises(error, match=message):
            DynamicGraph.read(matrix)
    with pytest.raises(InvalidBatch, match=f"the largest node is {n}, the graph has 2 vertices and the batch 1 edges"):
        DynamicGraph.from_networkx(nx.DiGraph([(0, n)]), keys=None)


def test_text_that_begins_with_a_mark_of_byte_order(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeff# people\n0 1\n".encode())
    with DynamicGraph.read(tmp_path / "a.txt") as graph:
        assert (graph.keys, graph.to_pandas().values.tolist()) == (None, [[0, 1]])
    (tmp_path / "a.mtx").write_bytes("\ufeff%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n".encode())
    with DynamicGraph.read(tmp_path / "a.mtx") as graph:
        assert (graph.num_vertices, graph.to_pandas().values.tolist()) == (2, [[0, 1]])


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_text_that_is_no_utf8(tmp_path, name):
    (tmp_path / name).write_bytes("source,target\nzoë,ada\n".encode("latin-1"))
    with pytest.raises(ReadError, match=f"{name}: .*row 0 is b'zo.xeb', which is no UTF-8"):
        DynamicGraph.read(tmp_path / name, "source", "target")
    (tmp_path / name).write_bytes("zoë,target\n1,2\n".encode("latin-1"))
    with pytest.raises(ReadError, match=f"{name}: the line of names is no UTF-8"):
        DynamicGraph.read(tmp_path / name, "zoë", "target")


STRINGS = ["a", "a\0", "é\0x", "", "a"]
CODES = pa.array([0, 1, 2, 3, 4], pa.int8())


@pytest.mark.parametrize(
    "column",
    [
        STRINGS,
        pl.Series(STRINGS),
        pl.Series(STRINGS, dtype=pl.Categorical),
        pd.array(STRINGS, dtype=pd.ArrowDtype(pa.string_view())),
        pa.array(STRINGS, pa.string_view()),
        pa.DictionaryArray.from_arrays(CODES, pa.array(STRINGS, pa.string_view())),
        pa.RunEndEncodedArray.from_arrays(pa.array(range(1, 6), pa.int32()), pa.array(STRINGS)),
        pa.chunked_array([pa.array(STRINGS[:2]).dictionary_encode(), pa.array(STRINGS[2:]).dictionary_encode()]),
    ],
    ids=lambda column: str(getattr(column, "type", getattr(column, "dtype", "list"))).split("<")[0],
)
def test_strings_of_any_kind_stay_different_vertices(column):
    for keys in ("auto", "string"):
        with DynamicGraph(keys=keys) as graph:
            graph.insert(column, column)
            assert sorted(graph.vertices()) == sorted(set(STRINGS))
            assert graph.has_edges(column, column).all()
            assert graph.insert({"source": column, "target": column}).inserted == 0
            assert graph.bfs("a\0")[column].tolist() == [-1, 0, -1, -1, -1]


def test_strings_of_arrow_that_are_no_utf8(tmp_path):
    offsets, data = pa.array([0, 1, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"a\xc3\x28b")
    bad = pa.table({"source": pa.Array.from_buffers(pa.string(), 3, [None, offsets, data]), "target": [0, 1, 2]})
    with pytest.raises(InvalidBatch, match=r"column 'source', row 1 is b'\\xc3\(', which is no UTF-8"):
        DynamicGraph.from_arrow(bad.set_column(1, "target", pa.array(["x", "y", "z"])))
    with pytest.raises(InvalidBatch, match="column 'source', of the type string, cannot be read"):
        DynamicGraph.from_arrow(bad, keys=None)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.array([0, None, 2], "Int64"), "column 'source', row 1 is missing"),
        (pl.Series([0, None, 2]), "column 'source', row 1 is missing"),
        (pa.chunked_array([[0], [None, 2]]), "column 'source', row 1 is missing"),
        (pd.DataFrame({"x": [0, 1, 2]}), r"column 'source' has shape \(3, 1\)"),
        ({0, 1, 2}, r"column 'source' has shape \(\)"),
        (pa.array([0, 1]), "column 'target' has 3 rows and column 'source' has 2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_columns_of_a_mapping(column, message):
    for keys in ("auto", None):
        with DynamicGraph(keys=keys) as graph:
            with pytest.raises(InvalidBatch, match=message):
                graph.insert({"source": column, "target": [0, 1, 2]})
            assert (graph.num_vertices, graph.num_edges, graph.epoch) == (0, 0, 0)


def test_sums_of_a_matrix_do_not_wrap():
    for dtype, value in ((np.int64, 2**62), (np.int64, -(2**62)), (np.uint64, 2**63)):
        matrix = sp.coo_array((np.array([value] * 3, dtype), ([0] * 3, [1] * 3)), shape=(2, 2))
        assert DynamicGraph.from_scipy(matrix, weighted=True).weights([0], [1]).tolist() == [3.0 * value]
    exact = sp.coo_array((np.array([2**60, 1 - 2**60]), ([0, 0], [1, 1])), shape=(2, 2))
    assert DynamicGraph.from_scipy(exact, weighted=True).weights([0], [1]).tolist() == [1]


def test_a_matrix_that_scipy_cannot_read():
    matrix = sp.csr_array(np.eye(2))
    matrix.indptr = np.array([0, 1, 5])
    with pytest.raises(InvalidBatch, match="the matrix cannot be read by SciPy: "):
        DynamicGraph.from_scipy(matrix)


def test_columns_of_several_levels():
    frame = pd.DataFrame([[0, 1]], columns=pd.MultiIndex.from_tuples([("a", "source"), ("a", "target")]))
    with pytest.raises(InvalidBatch, match="no column 'source'.*several levels have no name: frame.droplevel"):
        DynamicGraph.from_pandas(frame)
    assert DynamicGraph.from_pandas(frame.droplevel(0, axis=1)).num_edges == 1


def test_a_list_of_pairs_is_no_part():
    pairs = [(0, 1), (2, 3), (4, 5)]
    with DynamicGraph(n_vertices=9, weighted=True) as graph:
        for call in (graph.stream, graph.ingest):
            with pytest.raises(InvalidBatch, match=r"a part is a list of pairs, as \(0, 1\); a part has columns"):
                call([pairs])
        assert graph.num_edges == 0
        assert graph.stream([tuple(map(list, zip(*pairs, strict=True)))]).inserted == 3
