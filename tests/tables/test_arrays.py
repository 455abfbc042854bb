"""Sequences keep their entries as they are, and what Python does not have is refused."""

from __future__ import annotations

from collections import UserList, deque
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, Operations
from mgraph.batch import as_batch
from mgraph.tables.arrays import is_one, plain
from mgraph.tables.ids import as_ids, as_keys
from mgraph.tables.times import as_times
from mgraph.tables.weights import as_weights

pl = pytest.importorskip("polars")


@pytest.mark.parametrize("column", [[2, True], (np.int8(2), np.True_), deque([2.0, True])], ids=str)
def test_a_bool_among_numbers_is_no_number(column):
    for ends, message in (((column, [3, 4]), "src"), (([3, 4], column), "dst")):
        with pytest.raises(InvalidBatch, match=rf"{message}\[1\] is True; vertex ids are whole numbers"):
            EdgeBatch(*ends)
    with pytest.raises(InvalidBatch, match=r"src\[1\] is True; the graph's keys are int64"):
        EdgeBatch(column, [3, 4], keys="int64")
    with pytest.raises(InvalidBatch, match=r"weight\[1\] is True; weights are numbers"):
        EdgeBatch([1, 2], [3, 4], column)
    with pytest.raises(InvalidBatch, match=r"op\[1\] is True; operations are"):
        EdgeBatch([1, 2], [3, 4], op=[1, True])
    with pytest.raises(InvalidBatch, match=r"time\[\d\] is (True|2.0); times are integers"):
        EdgeBatch([1, 2], [3, 4], time=column)
    with pytest.raises(InvalidBatch, match="column 'source', row 1 is True"):
        as_batch({"source": column, "target": [3, 4]})
    for operations, message in (
        (([0, True], [1, 2], [3, 4]), r"kind\[1\] is True"),
        (([0, 0], column, [3, 4]), r"src\[1\] is True"),
        (([4, 0], [1, 2], column), r"dst\[1\] is True"),
        (([4, 0], [1, 2], [3, 4], column), r"weight\[1\] is True"),
    ):
        with pytest.raises(InvalidBatch, match=message):
            Operations(*operations)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([True, False], dtype="category"),
        pa.array([True, False]).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2]), pa.array([True, False])),
    ],
    ids=["pandas", "dictionary", "runs"],
)
def test_bools_in_a_dictionary_are_no_numbers(column):
    for keys in ("int64", None):
        with pytest.raises(InvalidBatch, match=r"src\[0\] is True"):
            EdgeBatch(column, [5, 6], keys=keys)


@pytest.mark.parametrize("sequence", [list, tuple, deque, UserList])
def test_strings_in_any_sequence_are_not_changed(sequence):
    ends = sequence(["bc", "a\0"])
    assert as_batch({"source": ends, "target": ends}, keys="string").src.tolist() == ["bc", "a\0"]
    assert Operations(["degree", "insert"], ["a", "b"], ends, keys="string").dst.tolist() == ["", "a\0"]
    with pytest.raises(InvalidBatch, match="column 'source', row 0 is 1; the graph's keys are strings"):
        as_batch({"source": sequence([1, "bc"]), "target": ends}, keys="string")


def test_values_that_python_or_arrow_does_not_have():
    long = pa.array([2**62], pa.duration("s"))
    for column in (long, long.dictionary_encode(), pa.array([-9], pa.time32("s")).dictionary_encode()):
        for keys in (None, "int64", "string"):
            with pytest.raises(InvalidBatch, match="src"):
                EdgeBatch(column, [1], keys=keys)
    with pytest.raises(InvalidBatch, match="src cannot be read by Arrow"):
        EdgeBatch(pl.Series([2**70, 7], dtype=pl.Int128), [1, 2])


@pytest.mark.parametrize("column", [[np.uint64(2**62 + 1), np.int64(-3)], [2**62 + 1, np.uint64(1), -3]], ids=str)
def test_integers_of_several_dtypes_stay_exact(column):
    values = [int(value) for value in column]
    batch = EdgeBatch(column, column, keys="int64", time=column)
    assert batch.src.tolist() == batch.time.tolist() == values
    with pytest.raises(InvalidBatch, match=r"src\[0\] is 9223372036854775808; keys run from"):
        EdgeBatch([2**63, np.int64(2)], [1, 2], keys="int64")
    with pytest.raises(InvalidBatch, match=r"src\[0\] is 9223372036854775808; vertex ids run from"):
        EdgeBatch([np.uint64(2**63), np.int64(2)], [1, 2])


def test_half_precision_ids_warn_of_nothing():
    assert EdgeBatch(np.array([1, 2048], np.float16), [1, 2]).src.tolist() == [1, 2048]


def test_scalars_of_arrow():
    batch = EdgeBatch([1, 2], [3, 4], pa.scalar(2.5), time=pa.scalar(7))
    assert (batch.weight.tolist(), batch.time.tolist()) == ([2.5, 2.5], [7, 7])
    for keys in (None, "int64", "string", "auto"):
        with pytest.raises(InvalidBatch, match="src has type Int64Scalar and 0 dimensions"):
            EdgeBatch.of({"src": pa.scalar(1), "dst": [1]}, keys, {})
    with pytest.raises(InvalidBatch, match=r"weight\[0\] is missing"):
        EdgeBatch([1], [2], pa.scalar(None, pa.float64()))


def test_categories_are_checked_by_the_rows():
    unused = pd.Categorical([2.0, 1.0], [0.5, 1.0, 2.0])
    assert EdgeBatch(unused, [1, 2], keys="int64").src.tolist() == [2, 1]
    for keys in ("int64", "auto"):
        with pytest.raises(InvalidBatch, match=r"src\[0\] is 1.5; keys are whole"):
            EdgeBatch.of({"src": pd.Categorical([1.5, 0]), "dst": [1, 2]}, keys, {})
    for categories in (["a", "b", 1], [1, "a", "b"]):
        for keys in ("string", "auto"):
            batch = EdgeBatch.of({"src": pd.Categorical(["b", "a"], categories), "dst": ["x", "y"]}, keys, {})
            assert list(batch.src) == ["b", "a"]
        with pytest.raises(InvalidBatch, match=r"src\[1\] is 1; the graph's keys are strings"):
            EdgeBatch(pd.Categorical(["b", 1], categories), ["x", "y"], keys="string")
        with pytest.raises(InvalidBatch, match=r"src\[1\] is 'b'; the graph's keys are int64"):
            EdgeBatch(pd.Categorical([1, "b"], categories), [1, 2], keys="int64")


def test_a_table_in_place_of_a_column():
    columns = {"id": [0]}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pl.LazyFrame(columns), pa.table(columns)):
        for convert in (as_ids, as_weights):
            with pytest.raises(InvalidBatch, match=f"x is a {type(frame).__name__}, a table; one of its columns"):
                convert(frame, 1, "x") if convert is as_weights else convert(frame, "x")
    with pytest.raises(InvalidBatch, match=r"x\[0\] is <LazyFrame"):  # which cannot be compared with itself
        as_keys([pl.LazyFrame({"id": [0]})], "int64", "x")


def test_runs_of_any_type_and_dictionaries_with_missing_entries():
    numbers, ends = [9, 2**60 + 1, -5, 7, 8], pa.array([2, 4, 6, 7, 9], pa.int32())
    for values in (
        pa.array(numbers).dictionary_encode(),
        pa.array([Decimal(number) for number in numbers]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 3, 4, 0]), pa.array([9, 2**60 + 1, None, -5, 7])),
        pa.array([None, *numbers[1:4], None]),
    ):
        column = pa.RunEndEncodedArray.from_arrays(ends, values)
        for rows in (column.slice(2, 5), pa.chunked_array([column.slice(2, 3), column.slice(5, 2)])):
            assert as_keys(rows, "int64", "src").tolist() == [2**60 + 1, 2**60 + 1, -5, -5, 7]
    assert as_times(column.slice(2, 5), 5).tolist() == [2**60 + 1, 2**60 + 1, -5, -5, 7]
    with pytest.raises(InvalidBatch, match=r"src\[5\] is missing"):
        as_keys(column.slice(2), "int64", "src")
    texts = pa.RunEndEncodedArray.from_arrays(ends, pa.array(["a", None, "b", "c", "d"], pa.string_view()))
    assert as_keys(texts.slice(4), "string", "src").tolist() == ["b", "b", "c", "d", "d"]


class Stream:
    """A column of another library, with Arrow's interface and no length."""

    def __init__(self, *chunks):
        self._column = pa.chunked_array(chunks)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._column.__arrow_c_stream__(requested_schema)


def test_columns_without_a_length_and_their_empty_chunks():
    for column in (pa.array([1, 2]), pa.array([1, 2], pa.int8()).dictionary_encode(), pa.array([1.0, 2.0])):
        ends = Stream(column.slice(1, 0), column, column.slice(2, 0))
        batch = as_batch({"source": ends, "target": ends, "weight": ends}, keys="int64")
        assert batch.src.tolist() == batch.dst.tolist() == batch.weight.tolist() == [1, 2]
        assert len(as_ids(Stream(column.slice(2, 0)), "src")) == 0
    with pytest.raises(InvalidBatch, match="column 'target' has 2 rows and column 'source' has 1"):
        as_batch({"source": Stream(column[:1]), "target": Stream(column)})
    with pytest.raises(InvalidBatch, match="column 'source' has type coo_array and 0 dimensions"):
        as_batch({"source": sp.coo_array([1, 2]), "target": [1, 2]})


def test_strings_in_chunks_get_offsets_with_room_for_2_gib():
    assert plain(pa.chunked_array([["a"], ["b"]]), "src").type == pa.large_string()


def test_columns_without_a_shape_are_not_one_value():
    class Exported:
        def __dlpack__(self, **options):
            raise AssertionError("the column is not read")

    for column in (Stream(pa.array([1])), pl.Series([1], dtype=pl.Int128), Exported(), [1], ([1, 2], [3])):
        assert not is_one(column)
    for value in (1, "ada", None, np.int8(1), np.array(1), pa.scalar(1), pd.NA, pd.Timestamp(0)):
        assert is_one(value)
    with DynamicGraph(n_vertices=3) as graph:
        assert graph.bfs(1)[Stream(pa.array([2, 1]))].tolist() == [-1, 0]
