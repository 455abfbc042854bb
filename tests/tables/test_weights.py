"""Weights are float32: what that changes is said, once where sums are kept."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from mgraph import DynamicGraph, InvalidBatch, Operations
from mgraph.tables.weights import as_ops, as_weights


def test_numbers_of_every_kind():
    decimals = pa.array([Decimal("1.50"), Decimal("2.25")])
    for given in ([1.5, 2.25], [Decimal("1.5"), Decimal("2.25")], decimals, np.array([1.5, 2.25], object)):
        assert as_weights(given, len(given)).tolist() == [1.5, 2.25]
    assert as_weights(pa.array([1, 2], pa.int8()), 2).tolist() == [1.0, 2.0]
    for bad in ([True], ["1"], [1j], [None], [Decimal("nan")], [10**40]):
        with pytest.raises(InvalidBatch, match=r"weight\[0\]"):
            as_weights(bad, 1)
    odd = [Decimal("snan"), np.timedelta64(1, "s"), np.array([1.0, 2.0])]
    for bad in [*odd, Decimal("1e400"), -Decimal("1e400"), np.longdouble("1e400")]:
        with pytest.raises(InvalidBatch, match=r"weight\[0\]"):
            as_weights(np.fromiter([bad], object, 1), 1)
    with pytest.raises(InvalidBatch, match=r"weight\[0\] is -1e\+400; weights"):
        as_weights(np.array([-np.longdouble("1e400")], object), 1)
    assert as_weights(np.array([Decimal("-Infinity"), np.longdouble("inf")], object), 2).tolist() == [-np.inf, np.inf]


def test_a_whole_number_that_float32_changes_is_named():
    for given in ([1, 2**24 + 1], [0.5, 2.0**24 + 1], [2**24 + 1]):
        with pytest.warns(UserWarning, match=r"weight\[.\] is 16777217.*float32 keeps 16777216"):
            as_weights(given, len(given))
    with pytest.warns(UserWarning, match=r"weight\[0\] is 33554435.*float32 keeps 33554436"):
        as_weights([2**25 + 3], 1)
    for given in ([2**53 + 1], np.array([1, 2**53 + 1], "u8"), [-(2**53) - 1], [2**63 - 1], [2**64 + 1]):
        with pytest.warns(UserWarning, match=r"weight\[.\] is -?\d+, and float32 keeps"):
            as_weights(given, len(given))
    for given in ([2**53, -(2**63)], [2**63], [2**24, 2**25], [0.1, 1000.01], [np.inf, 1e30], [float(2**24 + 2)]):
        as_weights(given, len(given))


def test_a_weight_that_becomes_0_warns():
    for given in (1e-46, -1e-50, 1e-310):
        with pytest.warns(UserWarning, match=rf"weight\[1\] is {given}, and float32 keeps 0: the least weight above 0"):
            assert as_weights([1.0, given], 2)[1] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_weights([1e-44, 0.0], 2)


def test_rounding_in_sums_warns_once():
    with DynamicGraph(n_vertices=3, weighted=True, combine="sum") as graph:
        graph.insert([0], [1], [0.5])
        with pytest.warns(UserWarning, match=r"weight\[0\] is 1000.01, and float32 keeps 1000.01.*adds up") as warned:
            graph.insert([0], [1], [1000.01])
        graph.insert([0], [1], [1000.01])  # which would fail if it warned
        assert len(warned) == 1
        assert warned[0].filename == __file__
    with DynamicGraph(n_vertices=3, weighted=True) as graph, warnings.catch_warnings(record=True) as warned:
        graph.insert([0], [1], [1000.01])
        assert warned == []


def stuck(caught):
    return [warning for warning in caught if "no longer grows" in str(warning.message)]


@pytest.mark.parametrize("options", [{}, {"directed": False, "structure": "slabgraph"}, {"reverse": True}], ids=str)
def test_a_sum_that_no_longer_grows_warns_once(options):
    """Exactly then: small sums of small weights stick, and large ones of large weights do not."""
    with DynamicGraph(n_vertices=9, weighted=True, combine="sum", **options) as graph:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph.insert([0, 1, 2, 3], [8, 8, 8, 8], [2.0**24 - 1, 2.0**60, np.inf, 0.5])
            graph.insert([0, 1, 2, 3, 3], [8, 8, 8, 8, 8], [1.0, 2.0**60, 1.0, 0.0, 0.25])
            graph.insert([4], [8], [2.0**30])  # another one, of no sum
        assert stuck(caught) == []
        with pytest.warns(UserWarning, match="no longer grows") as caught:
            report = graph.insert([0], [8], [1.0])
        assert (len(caught), caught[0].filename, report.updated) == (1, __file__, 1)
        assert graph.weights([0], [8]).tolist() == [2.0**24]
        graph.insert([0], [8], [1.0])  # which would fail if it warned
    with DynamicGraph(n_vertices=2, weighted=True, combine="max") as graph:
        graph.insert([0, 0], [1, 1], [2.0**24, 1.0])


def test_a_sum_of_small_weights_sticks_in_a_pipeline_an_ingest_and_within_a_batch():
    parts = [([0], [1], [2.0**12]), ([0, 0], [1, 1], [2.0**-13, 1.0])]
    for call in ("stream", "ingest"):
        for rows in (parts, [tuple(a + b for a, b in zip(*parts, strict=True))]):
            with DynamicGraph(n_vertices=2, weighted=True, combine="sum") as graph:
                with pytest.warns(UserWarning, match="no longer grows") as caught:
                    getattr(graph, call)(rows)
                assert len(caught) == 1
                assert graph.weights([0], [1]).tolist() == [2.0**12 + 1]


@pytest.mark.parametrize("options", [{}, {"directed": False, "structure": "lpma"}, {"window_edges": 9}], ids=str)
def test_a_sum_past_float32_warns_once(options):
    time = 1 if "window_edges" in options else None
    with DynamicGraph(n_vertices=9, weighted=True, combine="sum", times=time is not None, **options) as g:
        g.insert([0, 1, 2], [8, 8, 8], [2.0**127, np.inf, -np.inf], time=time)
        g.insert([1, 1, 2], [8, 8, 8], [1.0, np.inf, 2.0**127], time=time)  # infinite ones that were given
        with pytest.warns(UserWarning, match=r"past 3\.4e38 it is inf") as caught:
            report = g.insert([0, 3, 3], [8, 7, 7], [2.0**127] * 3, time=time)
        assert (len(caught), report.updated, report.inserted) == (1, 1, 1)
        g.insert([0], [8], [-(2.0**127)], time=time)  # which would fail if it warned
        assert g.weights([0, 3], [8, 7]).tolist() == [np.inf, np.inf]


def test_a_single_weight_is_that_of_all_edges():
    """Of arrays, pairs, tuples in a stream and operations, in any form of a number."""
    with DynamicGraph(n_vertices=9, weighted=True) as graph:
        for row, one in enumerate([2, 2.5, np.float32(3), np.array(4), Decimal("5.5"), np.int8(6)]):
            graph.insert([row, row], [7, 8], one)
            assert graph.weights([row, row], [7, 8]).tolist() == [float(one)] * 2
        graph.insert([(0, 1), (0, 2)], weight=9)
        graph.stream([([0, 0], [3, 4], 9)])
        graph.execute(Operations(["insert", "degree", "insert"], [0, 0, 0], [5, 0, 6], 9))
        assert graph.weights([0] * 6, range(1, 7)).tolist() == [9] * 6
        assert graph.insert([], [], 2).inserted == 0
        for bad in ("2", True, np.nan, np.datetime64(1, "s"), 1e300, [2], [[1, 2]]):
            with pytest.raises(InvalidBatch, match="weight"):
                graph.insert([0, 1], [1, 2], bad)
    with pytest.raises(InvalidBatch, match="weight has type ndarray and 2 dimensions; weights must be"):
        as_weights(np.full((2, 2), 1e300), 2)


def test_operations():
    assert as_ops([1, -1]).tolist() == as_ops([1.0, -1.0]).tolist() == [1, -1]
    assert as_ops(pa.array([1, -1], pa.int64())).dtype == np.int8
    for bad, word in (([1, 0], r"op\[1\] is 0"), ([0.5], r"op\[0\] is 0.5"), (["a"], r"op\[0\] is 'a'")):
        with pytest.raises(InvalidBatch, match=word):
            as_ops(bad)
    for bad in ([1, None], [1.0, np.nan]):
        with pytest.raises(InvalidBatch, match=r"op\[1\] is missing"):
            as_ops(bad)


def test_operations_that_only_equal_one():
    assert as_ops(np.array([1, Decimal(-1), np.float16(1)], object)).tolist() == [1, -1, 1]
    for bad in (True, np.timedelta64(1, "s"), Decimal("snan"), np.array([1, -1]), [1], None, Decimal("1e999999999")):
        with pytest.raises(InvalidBatch, match=r"op\[1\]"):
            as_ops(np.fromiter([1, bad], object, 2))
