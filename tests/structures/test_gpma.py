"""gpma passes the conformance suite, and its attempts end however many edges meet in one leaf."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import OptionsConformance, StructureConformance
from edge_model import Model, edges, random_batch, step

from mgraph.device import Device
from mgraph.structures import Counts, create
from mgraph.structures.gpma import Gpma


class TestGpma(StructureConformance):
    name = "gpma"
    weighted = OptionsConformance.weighted  # without weights its kernels are as gpma+'s


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return Device.of(request.param)


@pytest.fixture
def attempts(monkeypatch):
    """How many keys were pending in each attempt, with 1 for an insert and -1 for a delete."""
    seen, attempt = [], Gpma._attempt

    def watched(s, work, run, by, many):
        seen.append((by, many))
        return attempt(s, work, run, by, many)

    monkeypatch.setattr(Gpma, "_attempt", watched)
    return seen


def test_edges_that_meet_go_one_after_another(device, attempts):
    s, model = create("gpma", 4000, device=device, weighted=True), Model()
    step(s, model, random_batch(s, np.random.default_rng(1), 20_000, 1.0))
    crowd = [(7, d) for d in range(1000, 1060)]
    step(s, model, edges(s, crowd, np.arange(60)))
    inserts = [many for by, many in attempts if by > 0]
    assert inserts[0] > 50
    assert inserts == sorted(inserts, reverse=True)
    assert len(inserts) > 10, "few leaves for all of them"
    step(s, model, edges(s, crowd, op=[-1] * 60))
    assert attempts[-1][0] == -1


def test_few_edges_far_apart_need_few_attempts(device, attempts):
    s, model, rng = create("gpma", 20_000, device=device), Model(), np.random.default_rng(2)
    step(s, model, random_batch(s, rng, 100_000, 1.0))
    step(s, model, random_batch(s, rng, 200, 0.5))
    assert 1 <= len(attempts) <= 8


def test_ranges_of_every_width_are_locked(device):
    """A row that grows edge by edge, and shrinks again: its range climbs to the root before the array is replaced."""
    s, model, leaves = create("gpma", 500, leaf=8, device=device), Model(), set()
    step(s, model, edges(s, [(v, v) for v in range(0, 500, 2)]))
    for first in range(0, 240, 6):
        step(s, model, edges(s, [(251, d) for d in range(first, first + 6)]))
        leaves.add(s.leaves)
    assert len(leaves) > 1
    for first in range(0, 240, 40):
        step(s, model, edges(s, [(251, d) for d in range(first, first + 40)], op=[-1] * 40))


def test_inserts_and_deletes_in_the_order_that_keeps_the_bounds(device, attempts):
    s, model, rng = create("gpma", 300, leaf=8, device=device), Model(), np.random.default_rng(3)
    step(s, model, random_batch(s, rng, 3000, 1.0))
    most = s.root_bounds(s.leaves)[1]
    while s.num_edges < most - 10:  # nearly full: deletes have to come first
        absent = [(v, d) for v in range(300) for d in range(300) if (v, d) not in model.edges]
        step(s, model, edges(s, absent[: most - 10 - s.num_edges]))
    attempts.clear()
    gone = list(model.edges)[:100]
    absent = [(v, d) for v in range(300) for d in range(299, -1, -1) if (v, d) not in model.edges][:100]
    counts = step(s, model, edges(s, gone + absent, op=[-1] * 100 + [1] * 100))
    assert counts == Counts(inserted=100, deleted=100)
    order = [by for by, _ in attempts]
    assert order == sorted(order)
    assert set(order) == {-1, 1}
