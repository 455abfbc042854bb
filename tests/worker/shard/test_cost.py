"""The cost model of maintained results, with updates of known costs, counted in edges of the graph."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.worker.shard.cost import FEW, FIRST_SHARE, LONGEST, TIMES, CostModel

ARCS = 1 << 24
FRESH = 1.0  #: seconds of a full computation


def spent(model: CostModel, changed: int, needs: int, rate: float, ahead: bool = False) -> float:
    """The seconds of a read whose update visits `needs` edges, at `rate` seconds each.

    With `ahead`, an update that will visit too many gives up after a sixteenth of these, else after half of them.
    """
    most = model.most(ARCS, changed)
    if not most:
        return FRESH
    if needs <= (most if ahead else most // 2):
        seconds = rate * (changed + needs)
        model.completed(seconds, ARCS, changed, needs)
        return seconds
    visited = most // 16 if ahead else most // 2
    seconds = rate * (changed + visited)
    model.gave_up(seconds, ARCS, changed, visited)
    return seconds + FRESH


@pytest.mark.parametrize("ahead", [False, True])
def test_an_update_costs_at_most_a_fresh_run_in_the_median_and_half_more_at_worst(ahead):
    """For any price of an edge, and any share of the graph that updates visit, once the price is known."""
    rng = fresh_rng()
    for price in (0.5, 2, 8, 40):  # of an edge in an update, against one of a full computation
        for share in (1e-4, 1e-2, 0.1, 1.0):
            model, seconds, worst = CostModel(seconds=FRESH), list[float](), 0.0
            for _ in range(60):
                needs, known = int(ARCS * share * rng.lognormal(0, 1.5)), model.share != FIRST_SHARE
                seconds.append(spent(model, 1000, min(needs, 2 * ARCS), price * FRESH / ARCS, ahead))
                worst = max(worst, seconds[-1] if known else 0.0)
            later = seconds[10:]
            assert np.median(later) <= FRESH * 1.01, (price, share)
            assert worst <= 1.5 * FRESH * 1.01, (price, share)
            if price * share < 1 / 16:
                assert np.median(later) < FRESH / 2, (price, share)  # it does go on


def test_the_first_updates_learn_the_price():
    model, price = CostModel(seconds=FRESH), 40 * FRESH / ARCS
    worst = [spent(model, 1000, ARCS, price) for _ in range(4)]
    assert worst[0] > 1.5 * FRESH
    assert max(worst[1:]) <= 1.5 * FRESH * 1.01
    assert model.share == pytest.approx(1 / 40, rel=0.1)


def test_updates_are_suspended_for_ever_longer_and_tried_again():
    model = CostModel(seconds=FRESH)
    tried = [bool(model.most(ARCS, 1000))]
    model.gave_up(FRESH, ARCS, 1000)
    for _ in range(60):
        tried.append(bool(model.most(ARCS, 1000)))
        if tried[-1]:
            model.gave_up(FRESH, ARCS, 1000)
    gaps = np.diff(np.flatnonzero(tried))
    assert gaps[: TIMES - 1].tolist() == [1] * (TIMES - 1)
    assert gaps[TIMES - 1 :].tolist()[:4] == [2, 3, 5, 9] and max(gaps) == LONGEST + 1
    assert model.most(ARCS, 499) > 0  # a batch of less than half the size
    for _ in range(model.times):
        assert model.times > 0
        model.completed(FRESH / 10, ARCS, 1000, ARCS // 100)
    assert model.times == 0


def test_few_edges_are_always_allowed_and_many_changes_never():
    model = CostModel(seconds=FRESH)
    for _ in range(20):
        model.gave_up(100 * FRESH, ARCS, FEW)
    model.pause = 0
    assert model.most(1 << 12, FEW) == FEW
    assert model.most(1 << 12, FEW + 1) == 0
    assert model.most(ARCS, ARCS) == 0


def test_an_update_without_work_teaches_nothing():
    model = CostModel(seconds=FRESH)
    share = model.share
    model.completed(FRESH / 2, ARCS, 1, 1)
    assert model.share == share
