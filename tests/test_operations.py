"""`Operations` takes kinds as names and as codes, and names the place and the value of what it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mgraph import InvalidBatch, Operations
from mgraph.operations import KINDS

pl = pytest.importorskip("polars")


def test_names_and_codes_are_the_same():
    kinds, codes = list(KINDS), [getattr(Operations, name.upper()) for name in KINDS]
    assert codes == list(range(7))
    ids, weight = np.arange(7), np.arange(7) / 2
    wanted = Operations(kinds, ids, ids, weight)
    mixed = np.array([*kinds[:3], *codes[3:]], object)
    for given in (codes, np.array(codes, np.uint8), np.array(kinds), np.array(kinds, object), pd.Series(kinds), mixed):
        ops = Operations(given, ids, ids, weight)
        assert [column.dtype for column in (ops.kind, ops.src, ops.dst, ops.weight)] == ["i1", "u4", "u4", "f4"]
        for name in ("kind", "src", "dst", "weight"):
            assert getattr(ops, name).tolist() == getattr(wanted, name).tolist()
    assert wanted.dst.tolist() == [0, 1, 2, 3, 0, 0, 0]
    assert wanted.weight.tolist() == [0] * 7
    assert repr(wanted) == "Operations(7 operations, 2 updates, weight)"


def test_what_is_not_used_is_not_checked_and_nothing_is_changed():
    dst = np.array([1, -7, 1 << 50, 3])
    ops = Operations(["insert", "degree", "neighbors", "weight"], [0, 1, 2, 3], dst, [2, np.nan, np.nan, np.nan])
    assert ops.dst.tolist() == [1, 0, 0, 3]
    assert ops.weight.tolist() == [2, 0, 0, 0]
    assert dst.tolist() == [1, -7, 1 << 50, 3]
    assert Operations(["degree", "has_edge"], [0, 1], [None, 3]).dst.tolist() == [0, 3]
    assert Operations(["degree", "has_edge"], [0, 1], [np.nan, 3]).dst.tolist() == [0, 3]
    for other in (np.array(["x"]), np.array([b"x"]), np.array([5], "M8[ns]"), np.array([True]), np.array([1j])):
        ops = Operations(["degree"], [1], other, other)
        assert (ops.dst.tolist(), ops.weight.tolist()) == ([0], [0])


def test_large_keys_beside_missing_values_stay_exact():
    """Which NumPy would make floats of."""
    key, kinds = 2**53 + 1, ["degree", "has_edge"]
    column = pa.array([None, key])
    columns = [pd.array([None, key], dtype="Int64"), pd.Categorical([None, key]), pl.Series([None, key])]
    for dst in (column, column.dictionary_encode(), pd.Series(column, dtype=pd.ArrowDtype(pa.int64())), *columns):
        assert Operations(kinds, [key, key], dst, keys="int64").dst.tolist() == [0, key]
        with pytest.raises(InvalidBatch, match=r"dst\[0\] is missing"):
            Operations(["has_edge"] * 2, [key, key], dst, keys="int64")
    with pytest.raises(InvalidBatch, match="src cannot be read by Arrow"):
        Operations(["degree"], pl.Series([key], dtype=pl.Int128), [0], keys="int64")


def test_updates_alone():
    ops = Operations(["insert", "degree", "delete", "insert"], [0, 1, 2, 3], [4, 5, 6, 7], [1, 2, 3, 4])
    batch = ops.updates()
    assert [batch.src.tolist(), batch.dst.tolist(), batch.op.tolist()] == [[0, 2, 3], [4, 6, 7], [1, -1, 1]]
    assert batch.weight.tolist() == [1, 0, 4]


def test_none():
    ops = Operations([], [], [])
    assert len(ops) == ops.n_updates == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["insert", "upsert"], [0, 1], [0, 1]), r"kind\[1\] is 'upsert'; it is one of 'insert', 'delete'"),
        (([0, 7], [0, 1], [0, 1]), r"kind\[1\] is 7; .* codes 0 to 6"),
        (([0, 1, -1], [0, 1, 2], [0, 1, 2]), r"kind\[2\] is -1"),
        (([0.5], [0], [1]), "kind has dtype float64"),
        (([0, 1 << 70], [0, 1], [0, 1]), rf"kind\[1\] is {1 << 70}"),
        ((pd.Series(["insert", pd.NA], dtype="string"), [0, 1], [0, 1]), r"kind\[1\] is <NA>"),
        (([4, 0, 0], [0, 1, 2], [0, 1, 2], [None, 1, None]), r"weight\[2\] is missing"),
        (([4, 0, 0], [0, 1, 2], [None, 1, None]), r"dst\[2\] is missing"),
        (([["insert"]], [0], [1]), "2 dimensions"),
        (("insert", [0], [1]), "kind is 'insert', one value; kinds come in a list"),
        (([0, 0], [0], [1, 2]), r"src has shape \(1,\) and kind has shape \(2,\)"),
        (([0, 0], [0, 1], [1, 2, 3]), r"dst has shape \(3,\)"),
        (([0, 4], [0, 1], [1, 2], [1]), r"weight has shape \(1,\)"),
        (([4, 0], [0, -1], [1, 2]), r"src\[1\] is -1"),
        (([4, 2], [0, 1], [-1, -2]), r"dst\[1\] is -2"),
        (([4, 2], [0, 1.5], [0, 1]), r"src\[1\] is 1.5"),
        (([4, 0], [0, 1], [0, 1], [np.nan, np.nan]), r"weight\[1\] is missing"),
        (([4, 0], [0, 1], [0, 1], ["a", "b"]), r"weight\[1\] is 'b'; weights are numbers"),
        (([4, 0], [0, 1], np.array([5, 6], "M8[ns]")), r"dst\[1\] is 1970-01-01T.*06; vertex ids are whole"),
        (([0], [0], pd.MultiIndex.from_tuples([(1, 2)])), "dst is a MultiIndex of 2 levels"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(InvalidBatch, match=message):
        Operations(*given)
