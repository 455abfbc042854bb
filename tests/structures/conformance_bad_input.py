"""Conformance: bad input raises a typed error that names the value and the limit, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import edges, snapshot

from mgraph.batch import MAX_VERTICES, EdgeBatch
from mgraph.errors import InvalidBatch, UnknownVertex
from mgraph.structures.run import sort_batch

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


class BadInput:
    @pytest.mark.parametrize("case", BAD_BATCHES)
    def test_bad_batch(self, make, case):
        columns, message = BAD_BATCHES[case]
        s, _ = make.full(20, 50)
        before = snapshot(s)
        with pytest.raises(InvalidBatch, match=message):
            s.apply(EdgeBatch(*columns))
        assert snapshot(s) == before

    def test_unknown_vertices(self, make):
        s = make(90, n_rows=20)
        s.insert(edges(s, [(0, 1), (19, 89)]))
        before = snapshot(s)
        calls = {
            r"src\[1\] is 20": lambda: s.insert(edges(s, [(0, 0), (20, 0)])),
            r"dst\[0\] is 90": lambda: s.delete(edges(s, [(0, 90)])),
            "src.* is 20": lambda: s.has_edges([20], [0]),
            "dst.* is 90": lambda: s.has_edges([0], [90]),
            "vertices.* is 20": lambda: s.degrees([20]),
            r"vertices\[2\] is 21": lambda: s.neighbors([0, 1, 21]),
            r"u\[1\] is 20": lambda: s.common_neighbors([0, 20], [0, 1]),
            r"v\[0\] is 89": lambda: s.common_neighbors([0], [89]),
        }
        for message, call in calls.items():
            with pytest.raises(UnknownVertex, match=message):
                call()
        assert snapshot(s) == before

    @pytest.mark.parametrize("filled", [False, True])
    def test_unknown_vertices_of_an_unchecked_run(self, make, filled):
        s = make(90, n_rows=20)
        if filled:
            s.insert(edges(s, [(0, 1), (19, 89)]))
        before = snapshot(s)
        for pairs, message in {((3, 4), (20, 0)): r"src\[1\] is 20", ((0, 90), (1, 1)): r"dst\[0\] is 90"}.items():
            run = sort_batch(s.device, edges(s, pairs), s.n_rows, s.n_vertices, check=False)
            with pytest.raises(UnknownVertex, match=message):
                s.apply_run(run)
        assert snapshot(s) == before

    def test_numbers_that_are_not_whole(self, make):
        s, _ = make.full(20, 50)
        before = snapshot(s)
        for call, given in ((make, [10.5]), (make, ["10"]), (s.add_vertices, [1.5]), (s.add_vertices, [1, 0.5])):
            with pytest.raises(TypeError, match="integer"):
                call(*given)
        assert snapshot(s) == before

    def test_bad_ids_of_reads(self, make):
        s, _ = make.full(20, 50)
        before = snapshot(s)
        with pytest.raises(UnknownVertex, match="20 vertices"):
            s.delete_vertices([20])
        with pytest.raises(InvalidBatch, match="-1"):
            s.delete_vertices([-1])
        with pytest.raises(InvalidBatch, match="-1"):
            s.neighbors([-1])
        with pytest.raises(InvalidBatch, match="nan|missing"):
            s.degrees([np.nan])
        with pytest.raises(InvalidBatch, match=r"\(2,\)"):
            s.has_edges([0, 1], [1])
        with pytest.raises(InvalidBatch, match=r"u has shape \(2,\) and v \(1,\)"):
            s.common_neighbors([0, 1], [1])
        assert snapshot(s) == before

    def test_weights_for_an_unweighted_structure(self, make):
        s, _ = make.full(20, 50)
        batch = EdgeBatch([0], [1], [2.0])
        if s.weighted:
            s.insert(batch)
            return
        before = snapshot(s)
        with pytest.raises(InvalidBatch, match="weighted=True"):
            s.insert(batch)
        assert snapshot(s) == before
