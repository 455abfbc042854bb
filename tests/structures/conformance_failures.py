"""Conformance: plans, what happens when memory runs out, and what a structure says it holds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from edge_model import Model, arrays, check, edges, random_batch, run_of, scaled, snapshot

from mgraph.device import Device
from mgraph.errors import CapacityError, MgraphError
from mgraph.structures import Counts, Structure
from mgraph.structures.run import Run


class NoMemory:
    """Stands in for `Device.empty`; the k-th call from now on finds no memory (from 1; none where k is 0)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
        self.calls, real = 0, Device.empty

        def empty(device: Device, n: int, dtype: Any) -> Any:
            self.calls += 1
            if self.calls == k:
                raise CapacityError(f"call {k} for memory")
            return real(device, n, dtype)

        monkeypatch.setattr(Device, "empty", empty)


@contextmanager
def no_allocation(monkeypatch: pytest.MonkeyPatch, s: Structure) -> Iterator[None]:
    """Assert that the block allocates no device memory."""
    with monkeypatch.context() as patch:
        memory = NoMemory(patch, 1)
        tracemalloc.start()  # NumPy tells it what it takes
        try:
            yield
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert memory.calls == 0
    assert s.device.kind != "cpu" or peak < 64 << 10


def grow(s: Structure, seed: int, n: int) -> Run:
    """A run of inserts and deletes that makes `s` much larger."""
    return run_of(s, random_batch(s, np.random.default_rng(seed), n, inserts=0.9))


class Failures:
    def test_plan_says_counts_and_outcomes(self, make):
        s, model = make.full(30, 200)
        run = grow(s, 1, 300)
        before = snapshot(s)
        plan = s.prepare(run)
        assert snapshot(s) == before
        keys = [(k >> 32, k & 0xFFFFFFFF) for k in Device.to_host(run.keys).tolist()]
        names = {(1, False): 1, (1, True): 2, (-1, True): 3, (-1, False): 4}
        ops = Device.to_host(run.op).tolist()
        outcomes = [names[op, k in model.edges] for k, op in zip(keys, ops, strict=True)]
        for k in range(len(keys) - 1):
            if keys[k] == keys[k + 1]:
                outcomes[k] = 0
        assert 0 in outcomes, "a batch with repeats"
        assert Device.to_host(plan.outcome).tolist() == outcomes
        assert plan.counts == Counts(*(outcomes.count(o) for o in (1, 2, 3, 4)))
        assert s.commit(plan) == plan.counts

    def test_discard_leaves_it_as_it_was(self, make):
        s, model = make.full(30, 200)
        before = snapshot(s)
        s.discard(s.prepare(grow(s, 1, 3000)))
        assert snapshot(s) == before
        check(s, model)

    def test_of_two_plans_one_is_committed(self, make):
        s, model = make.full(30, 200)
        first, second = (random_batch(s, np.random.default_rng(seed), 500) for seed in (1, 2))
        plans = [s.prepare(run_of(s, batch)) for batch in (first, second)]
        s.discard(plans[0])
        assert s.commit(plans[1]) == model.apply(second)
        check(s, model)

    def test_plans_do_not_share_scratch_and_small_ones_leave_it_to_the_next(self, make):
        s, model = make.full(30, 200)
        batches = [random_batch(s, np.random.default_rng(seed), n) for seed, n in enumerate((50, 900, 50, 3000, 50))]
        first, second = (s.prepare(run_of(s, batch)) for batch in batches[:2])
        if second.scratch is None:
            pytest.skip(f"{s.name} takes no scratch")
        assert second.scratch is not first.scratch
        s.discard(second)
        third = s.prepare(run_of(s, batches[2]))
        assert third.scratch is second.scratch, "a smaller batch fits in"
        s.discard(third)
        assert s.commit(first) == model.apply(batches[0])
        for batch in batches[2:]:
            assert s.commit(s.prepare(run_of(s, batch))) == model.apply(batch)
        check(s, model)

    @pytest.mark.parametrize("misuse", ["committed", "discarded", "outdated", "of another"])
    def test_plan_is_good_once(self, make, misuse):
        s, model = make.full(30, 200)
        batch = random_batch(s, np.random.default_rng(1), 500)
        plan = s.prepare(run_of(s, batch))
        if misuse == "committed":
            assert s.commit(plan) == model.apply(batch)
        elif misuse == "discarded":
            s.discard(plan)
        elif misuse == "outdated":
            s.delete(edges(s, list(model.edges)))
            model.edges.clear()
        else:
            s, model = make.full(30, 200)
        before = snapshot(s)
        with pytest.raises(MgraphError, match="plan"):
            s.commit(plan)
        assert snapshot(s) == before
        check(s, model)

    @pytest.mark.parametrize("size", [20, 5000])
    def test_prepare_without_memory_changes_nothing(self, make, monkeypatch, size):
        s, model = make.full(60, 100)
        batch = random_batch(s, np.random.default_rng(1), size, inserts=0.9)
        run, before = run_of(s, batch), snapshot(s)
        for k in range(1, 100):
            with monkeypatch.context() as patch:
                memory = NoMemory(patch, k)
                try:
                    s.discard(s.prepare(run))
                    break
                except CapacityError:
                    assert memory.calls == k
            assert snapshot(s) == before
        assert k > 1 or size == 20, "a large batch takes memory; for a small one it may be there from the last"
        assert s.apply_run(run) == model.apply(batch)
        check(s, model)

    def test_commit_asks_for_no_memory(self, make, monkeypatch):
        s, model = make.full(1000, scaled(6000))
        for inserts in (0.9, 0.1):
            batch = random_batch(s, np.random.default_rng(1), scaled(6000), inserts=inserts)
            plan = s.prepare(run_of(s, batch))
            with no_allocation(monkeypatch, s):
                counts = s.commit(plan)
            assert counts == model.apply(batch)
        check(s, model)

    def test_nbytes_are_those_of_its_arrays(self, make):
        s = make(500)
        for n in (0, 100, 20_000):
            s.insert(random_batch(s, np.random.default_rng(n), n, inserts=1.0))
            held = sum(a.nbytes for a in arrays(vars(s)))
            assert 0 <= held - s.nbytes <= 4096  # constants, as bounds by level, may be left out
            least = s.num_edges * (8 if s.weighted else 4)
            assert least < s.nbytes < 4 * least + 100 * s.n_rows + 4096

    def test_counts_add_up(self, make):
        s, model = make(30), Model()
        total = Counts()
        for seed in range(5):
            batch = random_batch(s, np.random.default_rng(seed), 200)
            total += s.apply(batch)
            model.apply(batch)
        assert total.inserted - total.deleted == s.num_edges == len(model.edges)
