"""Conformance: vertices are added in two steps, and an addition that is refused or given up leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance_failures import NoMemory, no_allocation
from edge_model import Model, check, edges, random_batch, run_of, snapshot, step

from mgraph.batch import MAX_VERTICES
from mgraph.errors import CapacityError, InvalidOption, MgraphError
from mgraph.structures import Structure


def seen(s: Structure) -> list[Any]:
    """What a caller sees of a structure besides its edges."""
    return [s.n_rows, s.n_vertices, s.num_edges, s.nbytes]


class Vertices:
    def test_add_vertices(self, make):
        s, model = make.full(30, 200)
        for n in (0, 1, 70):
            s.add_vertices(n)
            check(s, model)
        assert (s.n_rows, s.n_vertices) == (101, 101)
        step(s, model, edges(s, [(100, 0), (0, 100), (99, 99)], [2, 3, 4]))
        s.add_vertices(50, rows=0)
        assert (s.n_rows, s.n_vertices) == (101, 151)
        step(s, model, edges(s, [(0, 150), (100, 149)]))
        s.add_vertices(0, rows=5)
        step(s, model, edges(s, [(105, 150)]))

    @pytest.mark.parametrize(("n", "rows"), [(0, None), (3, None), (1000, None), (70, 0), (0, 70)])
    def test_discarded_vertices_leave_it_as_it_was(self, make, n, rows):
        s, model = make.full(60, 300)
        before = seen(s), snapshot(s)
        plan = s.prepare_vertices(n, rows)
        assert (plan.n_rows, plan.n_vertices) == (60 + (n if rows is None else rows), 60 + n)
        assert (seen(s), snapshot(s)) == before, "prepared"
        s.discard_vertices(plan)
        assert not plan.work, "it keeps no memory"
        assert (seen(s), snapshot(s)) == before, "discarded"
        check(s, model)
        with pytest.raises(InvalidOption, match="plan"):
            s.commit_vertices(plan)
        assert (seen(s), snapshot(s)) == before, "refused"
        step(s, model, random_batch(s, np.random.default_rng(1), 300))

    @pytest.mark.parametrize(("n", "rows"), [(0, None), (3, None), (1000, None), (70, 0), (0, 70)])
    def test_committed_vertices_are_those_of_add_vertices(self, make, monkeypatch, n, rows):
        (s, model), (other, _) = make.full(60, 300), make.full(60, 300)
        other.add_vertices(n, rows)
        plan = s.prepare_vertices(n, rows)
        with no_allocation(monkeypatch, s):
            s.commit_vertices(plan)
        assert not plan.work, "it keeps no memory"
        assert seen(s) == seen(other)
        check(s, model)
        check(other, model)
        pairs = [(s.n_rows - 1, s.n_vertices - 1), (0, s.n_vertices - 1), (s.n_rows - 1, 0)]
        step(s, model, edges(s, pairs, [2, 3, 4]))
        before = seen(s), snapshot(s)
        with pytest.raises(InvalidOption, match="plan"):
            s.commit_vertices(plan)
        assert (seen(s), snapshot(s)) == before

    def test_a_batch_prepared_before_vertices_came_is_outdated(self, make):
        s, model = make.full(60, 300)
        batch = random_batch(s, np.random.default_rng(1), 500)
        plan, vertices = s.prepare(run_of(s, batch)), s.prepare_vertices(10)
        s.commit_vertices(vertices)
        before = snapshot(s)
        with pytest.raises(InvalidOption, match="plan"):
            s.commit(plan)
        s.discard(plan)
        assert snapshot(s) == before
        step(s, model, batch)

    @pytest.mark.parametrize("change", ["batch", "vertices", "of another"])
    def test_outdated_vertices_are_refused(self, make, change):
        s, model = make.full(60, 300)
        plan = s.prepare_vertices(10)
        if change == "batch":
            step(s, model, random_batch(s, np.random.default_rng(1), 500))
        elif change == "vertices":
            s.add_vertices(1)
        else:
            s, model = make.full(60, 300)
        before = snapshot(s)
        with pytest.raises(InvalidOption, match="plan"):
            s.commit_vertices(plan)
        s.discard_vertices(plan)
        assert snapshot(s) == before
        check(s, model)

    @pytest.mark.parametrize(("n", "rows"), [(1, 1), (10, 10), (500, 500), (5, 0), (0, 0)])
    def test_vertices_that_came_for_a_refused_batch_go_again(self, make, monkeypatch, n, rows):
        s, model = make.full(60, 300)
        before = seen(s), snapshot(s)
        back = s.prepare_vertices(0, 0)
        s.add_vertices(n, rows)
        pairs = [(s.n_rows - 1, s.n_vertices - 1), (0, s.n_vertices - 1), (s.n_rows - 1, 0)]
        plan = s.prepare(run_of(s, edges(s, pairs, [2, 3, 4])))
        s.discard(plan)
        with no_allocation(monkeypatch, s):
            s.undo_vertices(back)
        assert (seen(s), snapshot(s)) == before
        check(s, model)
        with pytest.raises(InvalidOption, match="plan"):
            s.commit(plan)
        step(s, model, random_batch(s, np.random.default_rng(1), 500))
        s.add_vertices(n, rows)
        step(s, model, edges(s, pairs, [2, 3, 4]))

    def test_a_discarded_plan_outdates_none(self, make):
        s, model = make.full(60, 300)
        batch = random_batch(s, np.random.default_rng(1), 500)
        plan, kept, given_up = s.prepare(run_of(s, batch)), s.prepare_vertices(10), s.prepare_vertices(20)
        s.discard_vertices(given_up)
        s.discard(plan)
        s.commit_vertices(kept)
        assert s.n_rows == s.n_vertices == 70
        step(s, model, batch)

    @pytest.mark.parametrize("call", ["prepare_vertices", "add_vertices"])
    def test_vertices_without_memory_change_nothing(self, make, monkeypatch, call):
        s, model = make.full(60, 100)
        before = seen(s), snapshot(s)
        for k in range(1, 10):
            with monkeypatch.context() as patch:
                memory = NoMemory(patch, k)
                try:
                    plan = getattr(s, call)(1000)
                    break
                except CapacityError:
                    assert memory.calls == k
            assert (seen(s), snapshot(s)) == before
        assert k > 1
        if call == "prepare_vertices":
            assert (seen(s), snapshot(s)) == before
            s.commit_vertices(plan)
        assert s.n_rows == 1060
        check(s, model)

    def test_too_many_vertices(self, make):
        s, model = make.full(60, 100)
        before = snapshot(s)
        for call in (s.prepare_vertices, s.add_vertices):
            with pytest.raises(CapacityError, match=str(MAX_VERTICES)):
                call(MAX_VERTICES - 59)
            with pytest.raises(MgraphError, match="-1"):
                call(-1)
        assert snapshot(s) == before
        check(s, model)
        for n in (-1, MAX_VERTICES + 1):
            with pytest.raises(CapacityError, match=str(n)):
                make(n, n_rows=3)

    def test_from_no_vertices_on(self, make):
        s, model = make(0), Model()
        s.commit_vertices(s.prepare_vertices(2))
        step(s, model, edges(s, [(1, 0)]))
