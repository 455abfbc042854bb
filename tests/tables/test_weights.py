"""Weights are float32: what that changes is said, once where sums are kept."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from mgraph import DynamicGraph, InvalidBatch
from mgraph.tables.weights import as_ops, as_weights


def test_numbers_of_every_kind():
    decimals = pa.array([Decimal("1.50"), Decimal("2.25")])
    for given in ([1.5, 2.25], [Decimal("1.5"), Decimal("2.25")], decimals, np.array([1.5, 2.25], object)):
        assert as_weights(given).tolist() == [1.5, 2.25]
    assert as_weights(pa.array([1, 2], pa.int8())).tolist() == [1.0, 2.0]
    for bad in ([True], ["1"], [1j], [None], [Decimal("nan")], [10**40]):
        with pytest.raises(InvalidBatch, match=r"weight\[0\]"):
            as_weights(bad)


def test_a_whole_number_that_float32_changes_is_named():
    for given in ([1, 2**24 + 1], [0.5, 2.0**24 + 1], [2**24 + 1]):
        with pytest.warns(UserWarning, match=r"weight\[.\] is 16777217.*float32 keeps 16777216"):
            as_weights(given)
    with pytest.warns(UserWarning, match=r"weight\[0\] is 33554435.*float32 keeps 33554436"):
        as_weights([2**25 + 3])
    for given in ([2**24, 2**25], [0.1, 1000.01], [np.inf, 1e30], [float(2**24 + 2)]):
        as_weights(given)


def test_rounding_in_sums_is_told_once():
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


def test_operations():
    assert as_ops([1, -1]).tolist() == as_ops([1.0, -1.0]).tolist() == [1, -1]
    assert as_ops(pa.array([1, -1], pa.int64())).dtype == np.int8
    for bad, word in (([1, 0], r"op\[1\] is 0"), ([0.5], r"op\[0\] is 0.5"), (["a"], r"op\[0\] is 'a'")):
        with pytest.raises(InvalidBatch, match=word):
            as_ops(bad)
    for bad in ([1, None], [1.0, np.nan]):
        with pytest.raises(InvalidBatch, match=r"op\[1\] is missing"):
            as_ops(bad)
