"""The table of keys against a dict, and users' columns of keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from plain_graph import fresh_rng

from mgraph import CapacityError, InvalidBatch
from mgraph.device import Device
from mgraph.keys import NONE, KeyArray, KeyTable, table
from mgraph.keys.key_array import objects
from mgraph.tables.ids import as_keys, chosen_kind
from mgraph.tables.texts import Texts

KINDS = ["int64", "string"]
EDGES = [0, -1, 1, 2**63 - 1, -(2**63), 2**32, 2**32 - 1, 2**31]
WORDS = ["", " ", "a", "A", "ada", "ünïcødé", "é", "é", "日本語", "a" * 1000, "a" * 999 + "b", "\0", "\0\0", "12345678"]


def drawn(rng: np.random.Generator, kind: str, bound: int, n: int) -> list:
    """Keys with many repeats, those at limits among them."""
    if kind == "int64":
        some = (rng.integers(-bound, bound, n) * 2**40).tolist()
        return [*some, *EDGES]
    some = [f"{'x' * int(i % 23)}{i}" for i in rng.integers(0, bound, n)]
    middle = [f"xxxxxxxx{i:05}yyyyyyyy" for i in rng.integers(0, bound, n)]  # of ends that are alike
    return [*some, *middle, *WORDS]


def as_list(kind: str, column) -> list:
    return column.tolist() if kind == "int64" else objects(column).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_a_dict_in_the_order_of_first_sight(kind):
    rng, keys, known = fresh_rng(), KeyTable(kind, Device("cpu")), {}
    for bound in (1, 10, 500, 500, 40, 3000):
        column = drawn(rng, kind, bound, 700)
        rng.shuffle(column)
        absent = [key for key in column if key not in known]
        found = keys.find(as_keys(column, kind, "src"))
        assert found.tolist() == [known.get(key, NONE) for key in column]
        for key in absent:
            known.setdefault(key, len(known))
        assert keys.number(as_keys(column, kind, "src")).tolist() == [known[key] for key in column]
        assert as_list(kind, keys.names.column()) == list(known)
        assert (keys.find(as_keys(column, kind, "src"), len(known) // 2) < NONE).tolist() == [
            known[key] < len(known) // 2 for key in column
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_dropped_or_removed_are_as_if_they_had_never_come(kind):
    rng, keys = fresh_rng(), KeyTable(kind, Device("cpu"))
    first = list(dict.fromkeys(drawn(rng, kind, 200, 300)))
    keys.number(as_keys(first, kind, "src"))
    for _ in range(5):
        more = drawn(rng, kind, 10**4, 400)
        keys.number(as_keys(more, kind, "src"))
        keys.drop(len(first))
        new = [key for key in more if key not in first]
        assert (keys.find(as_keys(new, kind, "src")) == NONE).all()
        assert keys.find(as_keys(first, kind, "src")).tolist() == list(range(len(first)))
        gone = np.sort(rng.choice(len(first), len(first) // 4, replace=False))
        before, n = keys, len(first)
        keys = keys.without(n, gone)
        left = np.delete(np.array(first, object), gone).tolist()
        assert as_list(kind, keys.names.column()) == left
        assert keys.find(as_keys(left, kind, "src")).tolist() == list(range(len(left)))
        assert as_list(kind, before.names.column(0, n)) == first  # as results that were computed before see them
        first = left


@pytest.mark.parametrize("kind", KINDS)
def test_keys_as_bytes(kind):
    keys = drawn(fresh_rng(), kind, 50, 60)
    names = KeyArray(kind, Device("cpu"))
    names.append(as_keys(keys, kind, "src"))
    for first in (0, 7, len(keys)):
        again = KeyArray.unpacked(np.concatenate([names.packed(first), np.zeros(5, np.uint8)]))
        assert again.kind == kind
        assert as_list(kind, again.column()) == keys[first:]
        assert KeyArray.count(names.packed(first)) == again.n


def test_too_many_vertices_leave_no_key(monkeypatch):
    keys = KeyTable("int64", Device("cpu"))
    keys.number(np.arange(5))
    monkeypatch.setattr(table, "MAX_VERTICES", 10)
    with pytest.raises(CapacityError, match="there would be 11 vertices"):
        keys.number(np.arange(11))
    assert keys.n == 5
    assert (keys.find(np.arange(5, 11)) == NONE).all()


def test_threads_look_up_while_keys_come():
    keys, n = KeyTable("int64", Device("cpu")), 20_000
    keys.number(np.arange(n))
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(keys.find, np.arange(n)) for _ in range(20)]
        for turn in range(1, 10):
            keys.number(np.arange(turn * n, (turn + 1) * n))
        assert all((each.result() == np.arange(n)).all() for each in found)
    assert keys.find(np.arange(10 * n)).tolist() == list(range(10 * n))


# ---- users' columns --------------------------------------------------------------------------------------------------

NUMBERS = [5, -3, 2**62, 5]
NAMES = ["ada", "", "日本", "ada"]


@pytest.mark.parametrize(
    "column",
    [
        NUMBERS, tuple(NUMBERS), np.array(NUMBERS), np.array(NUMBERS, object), pd.Series(NUMBERS),
        pd.Series(NUMBERS, dtype="Int64"), pd.Series(NUMBERS, dtype="category"), pd.Categorical(NUMBERS),
        pd.Index(NUMBERS), pa.array(NUMBERS), pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]),
        pa.array(NUMBERS).dictionary_encode(), pd.Series(pd.array(NUMBERS, dtype=pd.ArrowDtype(pa.int64()))),
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'dtype', getattr(column, 'type', ''))}",
)  # fmt: skip
def test_columns_of_numbers(column):
    keys = as_keys(column, "int64", "src")
    assert (keys.dtype, keys.tolist()) == (np.int64, NUMBERS)
    with pytest.raises(InvalidBatch, match=r"src\[0\] is 5; the graph's keys are strings"):
        as_keys(column, "string", "src")


@pytest.mark.parametrize(
    "column",
    [
        NAMES, np.array(NAMES), np.array(NAMES, object), np.array(NAMES, np.dtypes.StringDType()), pd.Series(NAMES),
        pd.Series(NAMES, dtype=object), pd.Series(NAMES, dtype="string[python]"), pd.Series(NAMES, dtype="string"),
        pd.Series(NAMES, dtype="category"), pd.Categorical(NAMES, [*set(NAMES), "unused"]),
        pa.array(NAMES), pa.array(NAMES, pa.large_string()), pa.array(["x", *NAMES])[1:],
        pa.array(NAMES, pa.string_view()),
        pa.chunked_array([NAMES[:1], [], NAMES[1:]]), pa.array(NAMES).dictionary_encode(),
        pa.chunked_array([pa.array(NAMES[:2]).dictionary_encode(), pa.array(NAMES[2:]).dictionary_encode()]),
        pd.Series(pd.array(NAMES, dtype=pd.ArrowDtype(pa.string()))),
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'dtype', getattr(column, 'type', ''))}",
)  # fmt: skip
def test_columns_of_strings(column):
    keys = as_keys(column, "string", "src")
    assert isinstance(keys, Texts)
    assert objects(keys).tolist() == NAMES
    assert objects(keys[1:3]).tolist() == NAMES[1:3]
    assert (list(keys), keys[-1]) == (NAMES, NAMES[-1])
    found = KeyTable("string", Device("cpu"))
    assert found.number(keys).tolist() == [0, 1, 2, 0]  # and no key of a category that no row has
    assert found.n == 3
    with pytest.raises(InvalidBatch, match=r"src\[0\] is 'ada'; the graph's keys are int64"):
        as_keys(column, "int64", "src")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "column",
    [[], np.zeros(0, np.uint32), pd.Series([], dtype=object), pa.array([], pa.string()), pd.Categorical([])],
    ids=lambda column: type(column).__name__,
)
def test_columns_without_rows(kind, column):
    assert len(as_keys(column, kind, "src")) == 0


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([1, None, 3], "int64", r"src\[1\] is missing"),
        ([1.0, np.nan], "int64", r"src\[1\] is missing"),
        (pd.Series([1, pd.NA], dtype="Int64"), "int64", r"src\[1\] is missing"),
        (pa.array([1, 2, None]), "int64", r"src\[2\] is missing"),
        (["a", None], "string", r"src\[1\] is missing"),
        (pd.Series(["a", None]), "string", r"src\[1\] is missing"),
        (pd.Series(["a", None], dtype="category"), "string", r"src\[1\] is missing"),
        (pa.array(["a", None]).dictionary_encode(), "string", r"src\[1\] is missing"),
        (np.ma.masked_array([1, 2], [False, True]), "int64", r"src\[1\] is masked"),
        ([0.5], "int64", r"src\[0\] is 0.5; keys are whole numbers"),
        ([1.0, 2.0**60], "int64", r"src\[1\] is 1.15\d*e\+18; keys are whole numbers, floats below 2\*\*53"),
        (np.array([1, 2**63], np.uint64), "int64", r"src\[1\] is 9223372036854775808; keys run from -2\*\*63"),
        (np.array([1, 2**70], object), "int64", r"src\[1\] is 1180591620717411303424; keys run from"),
        (np.array([1, "a"], object), "int64", r"src\[1\] is 'a'; the graph's keys are int64"),
        (np.array(["a", 1], object), "string", r"src\[1\] is 1; the graph's keys are strings"),
        ([True, False], "int64", r"src\[0\] is True, and the column is bool; the graph's keys are int64"),
        ([b"ada"], "int64", r"src\[0\] is b'ada', and the column is"),
        ([b"ada"], "string", r"src\[0\] is b'ada'; the graph's keys are strings"),
        (["a", "\ud800"], "string", r"src\[1\] is '\\ud800', which is no valid Unicode"),
        ([[1, 2]], "int64", "src has type list and 2 dimensions"),
        (["a", ["b"]], "string", r"src\[1\] is \['b'\]; the graph's keys are strings"),
        ([1, "a"], "string", r"src\[0\] is 1; the graph's keys are strings"),
        ([1, "a"], "int64", r"src\[1\] is 'a'; the graph's keys are int64"),
        ([["a"]], "string", "src has type list and 2 dimensions"),
        ("a", "string", "src is 'a', one value; keys come in a list"),
        ([2**63, 1], "int64", r"src\[0\] is 9223372036854775808; keys run from"),
        (pd.DataFrame({"a": ["b"]}), "string", "src is a DataFrame, a table; one of its columns is needed"),
        (pa.array([["a"]]), "string", r"src\[0\] is \['a'\]; the graph's keys are strings"),
        (pd.MultiIndex.from_tuples([(1, 2)]), "int64", "src is a MultiIndex of 2 levels"),
    ],
)
def test_values_that_are_no_keys(column, kind, message):
    with pytest.raises(InvalidBatch, match=message):
        as_keys(column, kind, "src")


@pytest.mark.parametrize(
    ("src", "dst", "kind"),
    [
        ([], [], None), ([0], [0], None), ([0], [1028], None), ([0], [1032], None), ([0], [1033], "int64"),
        ([1028], [1028], None), ([1029], [1029], "int64"), ([-1], [0], "int64"), ([2**62], [2], "int64"),
        (np.arange(10_000), np.arange(10_000) * 4, None), (np.arange(2000), np.full(2000, 9029), "int64"),
        (["a"], ["b"], "string"), (pd.Categorical(["a"]), ["b"], "string"),
        (pa.array(["a"]), pa.array(["b"]), "string"),
        (np.arange(3, dtype=np.uint32), np.arange(3, dtype=np.uint32), None), ([0.0, 5000.0], [1.0, 2.0], "int64"),
    ],
)  # fmt: skip
def test_which_keys_first_edges_choose(src, dst, kind):
    assert chosen_kind(src, dst) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_the_order_of_their_keys(kind):
    rng, names, keys = fresh_rng(), KeyArray(kind, Device("cpu")), []
    assert names.ascending(0) is None
    for more in (1, 5, 3, 200, 1, 40):
        new = [key for key in dict.fromkeys(drawn(rng, kind, 10**6, more)) if key not in keys]
        rng.shuffle(new)
        for first, end in ((0, len(new) // 2), (len(new) // 2, len(new))):
            if first < end:
                names.append(as_keys(new[first:end], kind, "src"))
                keys += new[first:end]
                want = sorted(range(len(keys)), key=keys.__getitem__)
                found = names.ascending(len(keys))
                assert (list(range(len(keys))) if found is None else found.tolist()) == want
                assert (found is None) == (want == list(range(len(keys))))
        dropped = len(keys) // 3
        names.drop(len(keys) - dropped)  # and other keys come in their place
        keys = keys[: len(keys) - dropped]
        fewer = names.ascending(len(keys) // 2)
        want = sorted(range(len(keys) // 2), key=keys.__getitem__)
        assert (list(range(len(want))) if fewer is None else fewer.tolist()) == want
