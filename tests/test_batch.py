"""What columns a batch takes, and what a part of a source may be: misnamed columns are named, not dropped."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph import MAX_VERTICES, EdgeBatch, InvalidBatch, InvalidOption
from mgraph.batch import as_batch, as_ids
from mgraph.tables.arrays import as_array
from mgraph.tables.names import Names, from_mapping

PART = {"src": [0, 1], "dst": [1, 2]}


def test_parts_of_every_kind():
    pandas = pytest.importorskip("pandas")
    batch = EdgeBatch([0, 1], [1, 2], [0.5, 2.0])
    assert as_batch(batch) is batch
    whole = {**PART, "weight": [0.5, 2.0], "op": [1, -1]}
    for part in (whole, pandas.DataFrame(whole), tuple(whole.values()), list(whole.values())):
        made = as_batch(part)
        assert (made.src.tolist(), made.dst.tolist()) == ([0, 1], [1, 2])
        assert (made.weight.tolist(), made.op.tolist()) == ([0.5, 2.0], [1, -1])


def test_other_columns_are_not_read():
    pandas = pytest.importorskip("pandas")
    part = {**PART, "Weight": [1, 1], "note": ["a", "b"]}
    for given in (part, pandas.DataFrame(part)):
        assert as_batch(given).weight is None


def test_columns_that_a_call_does_not_read_are_named():
    part = {**PART, "weight": [1, 1], "op": [1, -1]}
    with pytest.warns(UserWarning, match="column 'weight' of the table was not used"):
        assert as_batch(part, Names(reads=("op",))).weight is None
    assert as_batch(part, Names(reads=("op",), quiet=("weight",))).op.tolist() == [1, -1]


def test_missing_columns_are_named():
    with pytest.raises(InvalidBatch, match="the mapping has no column 'target'; its columns are 'src', 'to'"):
        as_batch({"src": [0], "to": [1]})
    with pytest.raises(InvalidBatch, match="no column 'other'"):
        as_batch(PART, Names("src", "other"))
    with pytest.raises(InvalidBatch, match="has the columns 'source' and 'src'; source= says which"):
        as_batch({**PART, "source": [1, 2]})
    with pytest.raises(InvalidBatch, match="a part has type int"):
        as_batch(5)


def test_names_say_which_is_which():
    part = {"from": [0], "to": [1], "w": [2.5], "when": [7]}
    batch = as_batch(part, Names("from", "to", "w"))
    assert (batch.src[0], batch.dst[0], batch.weight[0], batch.op) == (0, 1, np.float32(2.5), None)
    mixed = as_batch({"source": [3], "dst": [4]})
    assert (mixed.src[0], mixed.dst[0]) == (3, 4)


@pytest.mark.parametrize("columns", [{"src": "a"}, {"src": "a", "dst": "b", "when": "c"}, ["a", "b"], "src"])
def test_columns_that_name_no_batch(columns):
    with pytest.raises(InvalidOption, match="columns is .*src and dst"):
        from_mapping(columns, Names())


def test_the_mapping_of_names_is_deprecated():
    with pytest.warns(DeprecationWarning, match="use source="):
        assert from_mapping({"src": "a", "dst": "b", "weight": "w"}, Names()) == Names("a", "b", "w")
    with pytest.raises(InvalidOption, match="and columns are named by source"):
        from_mapping({"src": "a", "dst": "b"}, Names("a"))


# ---- what a batch refuses --------------------------------------------------------------------------------------------


BAD_BATCHES = {
    "negative": (([0, -3], [1, 1]), r"src\[1\] is -3"),
    "fractional": (([0, 1], [1, 1.5]), r"dst\[1\] is 1.5"),
    "not a number": (([np.nan, 1], [1, 1]), r"src\[0\] is missing"),
    "text": ((["a"], [1]), "src.0. is 'a'; vertex ids are whole numbers"),
    "booleans": (([True], [1]), "src.0. is True; .*the column is bool"),
    "past the id type": (([0], [2**32 - 1]), str(MAX_VERTICES - 1)),
    "far past the id type": (([0], [2**40]), str(2**40)),
    "two dimensions": (([[0, 1]], [1]), "2 dimensions"),
    "unequal lengths": (([0, 1, 2], [1, 1]), r"dst has shape \(2,\)"),
    "unequal weights": (([0], [1], [1.0, 2.0]), r"weight has shape \(2,\)"),
    "unequal ops": (([0], [1], None, [1, 1]), r"op has shape \(2,\)"),
    "weight not a number": (([0, 1], [1, 1], [1.0, np.nan]), r"weight\[1\] is missing"),
    "weight of text": (([0], [1], ["x"]), "weight.0. is 'x'; weights are numbers"),
    "op zero": (([0, 1], [1, 1], None, [1, 0]), r"op\[1\] is 0"),
    "op two": (([0], [1], None, [2]), r"op\[0\] is 2"),
    "op a float": (([0], [1], None, [0.5]), "op.0. is 0.5"),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_columns_that_are_none(case):
    columns, message = BAD_BATCHES[case]
    with pytest.raises(InvalidBatch, match=message):
        EdgeBatch(*columns)


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ([0], [float("nan")], r"dst\[0\] is missing"),
        (["a"], [1], r"src\[0\] is 'a'; vertex ids are whole numbers.*takes strings"),
        ([[0]], [[1]], "2 dimensions"),
        (1, 2, "src is 1, one value; ids come in a list"),
        ("ada", "bob", "src is 'ada', one value"),
        ({0}, {1}, "src has type set and 0 dimensions"),
        ([[0], [1, 2]], [1], "a list cannot be made an array: .*inhomogeneous"),
        ([MAX_VERTICES], [1], rf"src\[0\] is {MAX_VERTICES}; vertex ids run from 0 to {MAX_VERTICES - 1}"),
    ],
    ids=str,
)
def test_ids_that_are_none(src, dst, message):
    with pytest.raises(InvalidBatch, match=message):
        EdgeBatch(src, dst)


def test_the_last_id_that_there_is():
    assert EdgeBatch([MAX_VERTICES - 1], [0]).src.tolist() == [MAX_VERTICES - 1]


def test_weights_that_are_none():
    with pytest.raises(InvalidBatch, match=r"weight\[0\] is missing"):
        EdgeBatch([0], [1], [float("nan")])
    with pytest.raises(
        InvalidBatch, match=r"weight\[1\] is 1e\+39; weights are stored as float32, up to 3.4028235e\+38"
    ):
        EdgeBatch([0, 1], [1, 2], [float("inf"), 1e39])


@pytest.mark.parametrize("op", [0, 2, True, 1.0, "delete"])
def test_one_op_that_is_none(op):
    with pytest.raises(InvalidBatch, match=f"op is {op!r}; ops are"):
        EdgeBatch([0], [1], op=op)


def test_masked_entries():
    masked = np.ma.array([0, 5], mask=[False, True])
    for at, name in enumerate(("src", "dst", "weight", "op")):
        columns = [[1, 2], [3, 4], None, None]
        columns[at] = masked
        with pytest.raises(InvalidBatch, match=rf"^{name}\[1\] is masked; every entry needs a value"):
            EdgeBatch(*columns)
    assert EdgeBatch(np.ma.array([0, 5]), [1, 2]).src.tolist() == [0, 5]


def test_a_batch_is_cut_by_slices_only():
    batch = EdgeBatch([0, 1, 2], [1, 2, 3])
    assert batch[1:].src.tolist() == [1, 2]
    for part in (0, [0, 1]):
        with pytest.raises(TypeError, match="takes slices"):
            batch[part]
    with pytest.raises(TypeError, match="takes slices"):
        list(batch)


@pytest.mark.parametrize("kind", [f"{order}{sign}{size}" for order in "<>" for sign in "iu" for size in (1, 2, 4, 8)])
def test_ids_of_every_integer_dtype(kind):
    dtype = np.dtype(kind)
    most = min(np.iinfo(dtype).max, MAX_VERTICES - 1)
    ids = as_ids(np.array([0, most, 1], dtype)[::-1], "ids")
    assert (ids.dtype, ids.tolist()) == (np.uint32, [1, most, 0])
    if kind.endswith("u4"):
        return  # not scanned: a graph compares the largest with its vertices
    for bad in {-1, int(np.iinfo(dtype).min), MAX_VERTICES, int(np.iinfo(dtype).max)}:
        if np.iinfo(dtype).min <= bad <= np.iinfo(dtype).max and not 0 <= bad < MAX_VERTICES:
            with pytest.raises(InvalidBatch, match=rf"ids\[1\] is {bad}; vertex ids run from 0"):
                as_ids(np.array([3, bad, 4], dtype), "ids")


class WithMissing:
    """An array that refuses DLPack, as Arrow's arrays with missing values do in some releases."""

    def __dlpack_device__(self):
        raise TypeError("Can only use DLPack on arrays with no nulls")

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, np.nan])


def test_an_array_that_refuses_dlpack_is_taken_by_its_array_interface():
    assert np.isnan(as_array(WithMissing())[1])
