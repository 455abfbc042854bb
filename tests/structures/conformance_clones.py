"""Conformance: a clone has the same edges, and a change to either leaves the other as it was."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from conformance_failures import NoMemory
from conformance_streams import SEED
from edge_model import check, edges, random_batch, run_of, snapshot, step

from mgraph.errors import CapacityError, InvalidOption


class Clones:
    def test_a_clone_and_its_original_change_apart(self, make):
        print(f"seed {SEED}")
        rng = np.random.default_rng(SEED)
        s, model = make.full(200, 3000)
        for inserts in (0.2, 0.8):
            step(s, model, random_batch(s, rng, 2000, inserts, skew=4))
        twin = s.clone()
        assert type(twin) is type(s)
        assert (twin.n_rows, twin.n_vertices, twin.weighted) == (s.n_rows, s.n_vertices, s.weighted)
        assert twin.nbytes == s.nbytes

        # Each is changed while the other is not, by batches that grow it, empty it and add vertices.
        pairs = [(s, model), (twin, deepcopy(model))]
        for (one, its), (other, others) in (pairs, pairs[::-1]):
            before = snapshot(other)
            for n, inserts in ((4000, 0.9), (1, 1.0), (3000, 0.1)):
                step(one, its, random_batch(one, rng, n, inserts))
            one.add_vertices(70)
            step(one, its, edges(one, [(one.n_rows - 1, 0), (0, one.n_vertices - 1)], [2, 3]))
            one.delete_vertices([3, 5])
            its.delete_vertices([3, 5])
            check(one, its)
            assert snapshot(other) == before
            check(other, others)

    def test_clones_of_clones_and_of_empty_structures(self, make):
        s, model = make.full(50, 300)
        twin = s.clone().clone()
        del s
        step(twin, model, random_batch(twin, np.random.default_rng(2), 300))
        for n_rows in (0, 20):
            empty = make(40, n_rows)
            twin = empty.clone()
            if n_rows:
                twin.insert(edges(twin, [(1, 2), (19, 39)]))
                assert twin.num_edges == 2
            twin.check_invariants()
            assert empty.num_edges == 0
            empty.check_invariants()

    def test_a_plan_belongs_to_one_of_them(self, make):
        s, model = make.full(50, 300)
        batch = random_batch(s, np.random.default_rng(3), 300)
        plan, twin = s.prepare(run_of(s, batch)), s.clone()
        with pytest.raises(InvalidOption, match="plan"):
            twin.commit(plan)
        s.commit(plan)
        check(twin, model)
        step(twin, model, batch)
        check(s, model)

    def test_a_clone_has_the_threads_and_the_budget_of_its_device(self, make):
        s, model = make.full(50, 300)
        device = replace(s.device, threads=s.device.threads + 1)
        twin = s.clone(device)
        assert twin.device is device
        assert s.device is not device
        step(twin, model, random_batch(twin, np.random.default_rng(4), 300))

    def test_a_clone_without_memory_leaves_the_structure_as_it_was(self, make, monkeypatch):
        s, model = make.full(50, 300)
        before = snapshot(s)
        with monkeypatch.context() as patch:
            calls = NoMemory(patch, 0)
            s.clone()
        assert calls.calls
        for k in range(1, calls.calls + 1):
            with monkeypatch.context() as patch:
                NoMemory(patch, k)
                with pytest.raises(CapacityError, match=f"call {k}"):
                    s.clone()
            assert snapshot(s) == before
        check(s, model)
