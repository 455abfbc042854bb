"""Conformance: bad input raises a typed error that names the value and the limit, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import edges, snapshot

from mgraph.batch import EdgeBatch
from mgraph.errors import InvalidBatch, UnknownVertex
from mgraph.structures.run import sort_batch


class BadInput:
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
