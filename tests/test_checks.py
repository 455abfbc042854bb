"""Single arguments: each comes back as what it is meant to be, or an error names it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from mgraph import DynamicGraph
from mgraph.batch import MAX_VERTICES
from mgraph.checks import (
    check_count,
    check_direction,
    check_dtype,
    check_flag,
    check_growth,
    check_number,
    check_vertex,
    check_whole,
)
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption, MgraphError, UnknownVertex


@pytest.mark.parametrize("value", [0, 7, 10**30, np.uint8(3), np.int64(0), np.array(5)], ids=repr)
def test_whole_numbers(value):
    found = check_whole(value, "n")
    assert (found, type(found)) == (int(value), int)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "n is -1; it must be a whole number of 0 or more"),
        (np.int8(-3), "0 or more"),
        (True, "n is True"),
        (False, "n is False"),
        (1.0, "n is 1.0; it must be a whole number"),
        (np.float64(2), "whole number"),
        ("3", "n is '3'"),
        (None, "n is None"),
        ([1], r"n is \[1\]"),
        (np.array([1, 2]), "whole number"),
    ],
    ids=str,
)
def test_no_whole_numbers(value, message):
    with pytest.raises(InvalidOption, match=message):
        check_whole(value, "n")
    with pytest.raises(InvalidOption, match=message):
        check_count(value, "n")


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_more_digits_than_python_writes(sign):
    big = sign * 10**5000
    one = DynamicGraph(n_vertices=3, directed=False, times=True)
    calls = {
        "n_vertices": lambda: DynamicGraph(n_vertices=big), "directed": lambda: DynamicGraph(directed=big),
        "window": lambda: DynamicGraph(n_vertices=3, window=big), "workers": lambda: DynamicGraph(workers=big),
        "source": lambda: one.bfs(big), "tol": lambda: one.pagerank(tol=big), "before": lambda: one.expire(big),
        "k": lambda: one.betweenness_centrality(k=big), "an operand": lambda: one.pagerank() * big,
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(MgraphError, match=f"^{name} is an integer of 16610 bits"):
            call()


def test_as_many_as_there_are_ids_and_no_more():
    assert check_count(MAX_VERTICES, "n_vertices") == MAX_VERTICES
    with pytest.raises(CapacityError, match=f"n_vertices is {MAX_VERTICES + 1}; .* at most {MAX_VERTICES}"):
        check_count(MAX_VERTICES + 1, "n_vertices")


@pytest.mark.parametrize("value", [0, -2.5, np.float32(0.5), np.int8(-3), Fraction(1, 4), math.inf], ids=repr)
def test_numbers(value):
    found = check_number(value, "alpha")
    assert (found, type(found)) == (float(value), float)


def test_not_a_number_is_one_which_who_asked_has_to_refuse():
    assert math.isnan(check_number(math.nan, "tol"))


NO_NUMBERS = [True, "0.5", None, 10**400, 1j, Decimal("0.5"), [0.5], np.array(0.5), np.timedelta64(5, "ns")]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_no_numbers(value):
    with pytest.raises(InvalidOption, match="alpha is .*; it must be a number in the range of float64"):
        check_number(value, "alpha")


@pytest.mark.parametrize("value", ["float32", "f4", np.float32, np.dtype("<f4"), "single"])
def test_float32_by_any_of_its_names(value):
    assert check_dtype(value) == "float32"


@pytest.mark.parametrize("value", ["float64", "f8", float, np.float64, "double"])
def test_float64_by_any_of_its_names(value):
    assert check_dtype(value) == "float64"


@pytest.mark.parametrize("value", ["float16", "int32", ">f8", None, 64, "double trouble", "f4,f4", [], np.complex64])
def test_no_float(value):
    with pytest.raises(InvalidOption, match="dtype is .*; it must be float32 or float64"):
        check_dtype(value)


@pytest.mark.parametrize("value", [0, 9, np.uint32(9), np.int64(0)], ids=repr)
def test_vertices(value):
    found = check_vertex(value, 10, "source")
    assert (found, type(found)) == (int(value), int)


@pytest.mark.parametrize(
    ("value", "n", "error", "message"),
    [
        (10, 10, UnknownVertex, "source is 10; the graph has 10 vertices, 0 to 9"),
        (-1, 10, UnknownVertex, "source is -1"),
        (0, 0, UnknownVertex, "the graph has 0 vertices$"),
        (1, 1, UnknownVertex, "the graph has 1 vertex, 0$"),
        (MAX_VERTICES, MAX_VERTICES, UnknownVertex, f"source is {MAX_VERTICES}"),
        (0.5, 10, InvalidOption, "source is 0.5; a vertex id is a whole number"),
        ("1", 10, InvalidOption, "source is '1'"),
        (True, 10, InvalidOption, "source is True; a vertex id is a whole number"),
        (None, 10, InvalidOption, "source is None"),
    ],
)
def test_no_vertices(value, n, error, message):
    with pytest.raises(error, match=message):
        check_vertex(value, n, "source")


@pytest.mark.parametrize(("n", "edges", "last"), [(10, 1, 160 + 2**20), (0, 5, 2**20), (10, 10**6, 32 * 10**6)])
def test_a_graph_grows_to_ids_that_may_be_meant(n, edges, last):
    assert check_growth(last, "src[0]", n, edges) == last + 1
    with pytest.raises(InvalidBatch, match=rf'src\[0\] is {last + 1}, the graph has {n} vertices .*keys="int64"'):
        check_growth(last + 1, "src[0]", n, edges)


def test_directions():
    assert [check_direction("out", reverse) for reverse in (False, True)] == ["out", "out"]
    assert check_direction("in", True) == "in"
    with pytest.raises(InvalidOption, match="create the graph with reverse=True"):
        check_direction("in", False)
    for other in ("up", "OUT", None, 1, ["out"]):
        with pytest.raises(InvalidOption, match='is neither "out" nor "in"'):
            check_direction(other, True)


def test_a_duration_is_no_flag():
    """NumPy counts it among its integers, and it equals 1."""
    for value in (np.timedelta64(1, "s"), np.timedelta64(0, "D"), 2, "yes", np.ones(2)):
        with pytest.raises(InvalidOption, match="weighted is .*; it must be True or False"):
            check_flag(value, "weighted")
