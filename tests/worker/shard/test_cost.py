"""The cost model of maintained results, with updates of known costs, counted in edges of the graph."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.worker.shard.cost import FADE, FEW, LONGEST, CostModel

ARCS = 1 << 24
FRESH = 1.0  #: seconds of a full computation


def model(rate: float = 0.0) -> CostModel:
    """A model after the first full computation."""
    return CostModel(seconds=FRESH, arcs=ARCS, rate=rate)


def spent(cost: CostModel, changed: int, needs: int, rate: float, ahead: bool = False) -> float:
    """The seconds of a read whose update visits `needs` edges, at `rate` seconds each.

    With `ahead`, an update that will visit too many gives up after a sixteenth of these, else after half of them.
    """
    most = cost.most(ARCS, changed)
    if not most:
        cost.computed(FRESH, ARCS)
        return FRESH
    if needs <= (most if ahead else most // 2):
        seconds = rate * (changed + needs)
        cost.completed(seconds, ARCS, changed, needs)
        return seconds
    visited = most // 16 if ahead else most // 2
    seconds = rate * (changed + visited)
    cost.gave_up(seconds, ARCS, changed, visited)
    cost.computed(FRESH, ARCS)
    return seconds + FRESH


@pytest.mark.parametrize("ahead", [False, True])
def test_an_update_costs_at_most_a_fresh_run_in_the_median_and_half_more_at_worst(ahead):
    """For any price of an edge, and any share of the graph that updates visit, once the price is known."""
    rng = fresh_rng()
    for price in (0.5, 2, 8, 40):  # of an edge in an update, against one of a full computation
        for share in (1e-4, 1e-2, 0.1, 1.0):
            cost, seconds, worst = model(), list[float](), 0.0
            for _ in range(60):
                needs, known = int(ARCS * share * rng.lognormal(0, 1.5)), cost.rate > 0
                seconds.append(spent(cost, 1000, min(needs, 2 * ARCS), price * FRESH / ARCS, ahead))
                worst = max(worst, seconds[-1] if known else 0.0)
            later = seconds[10:]
            assert np.median(later) <= FRESH * 1.01, (price, share)
            assert worst <= 1.5 * FRESH * 1.01, (price, share)
            if price * share < 1 / 32:
                assert np.median(later) < FRESH / 2, (price, share)  # it does go on


def test_the_first_updates_learn_the_price():
    cost, price = model(), 40 * FRESH / ARCS
    worst = [spent(cost, 1000, ARCS, price) for _ in range(40)]
    assert worst[0] > 1.5 * FRESH
    assert max(worst[1:]) <= 1.5 * FRESH * 1.01
    assert cost.rate == pytest.approx(price)


def test_updates_that_only_change_much_are_suspended_by_their_size():
    """No edge is visited, so the rate says nothing."""
    cost = model()
    assert cost.most(ARCS, 10**6) > 0
    cost.completed(1.2 * FRESH, ARCS, 10**6, 10)
    assert cost.rate == 0 and cost.pause == 1
    assert cost.most(ARCS, 10**6) == 0
    assert cost.most(ARCS, 10**6) > 0
    cost.completed(3 * FRESH, ARCS, 10**6, 10)
    assert cost.pause == 2
    assert cost.most(ARCS, 10**6) == 0 and cost.most(ARCS, 10**5) > 0


def test_updates_are_suspended_for_ever_longer_and_tried_again():
    cost, longer = model(), FRESH / 4
    tried = [bool(cost.most(ARCS, 1000))]
    cost.gave_up(longer, ARCS, 1000)
    for _ in range(60):
        tried.append(bool(cost.most(ARCS, 1000)))
        if tried[-1]:
            cost.gave_up(longer, ARCS, 1000)
    gaps = np.diff(np.flatnonzero(tried))
    assert gaps.tolist()[:4] == [2, 3, 5, 9] and max(gaps) == LONGEST + 1
    assert cost.most(ARCS, 499) > 0  # a batch of less than half the size
    for _ in range(cost.times):
        assert cost.times > 0
        cost.completed(FRESH / 10, ARCS, 1000, 10)
    assert cost.times == 0


def test_updates_go_on_if_only_some_of_them_are_slow():
    """They cost less in the mean than full computations. A very slow one ends that."""
    cost = model()
    for _ in range(LONGEST // 2):
        for seconds in (FRESH / 5, 1.2 * FRESH):
            assert cost.most(ARCS, 1000) > 0
            cost.completed(seconds, ARCS, 1000, 10)
    cost.completed(5 * FRESH, ARCS, 1000, 10)
    assert cost.pause == 1
    cost.completed(FRESH / 5, ARCS, 1000, 10)
    assert cost.times == 0


def test_much_smaller_batches_are_neither_suspended_nor_limited_with_large_ones():
    cost = model()
    first = cost.most(ARCS, 100)
    for _ in range(3):
        cost.gave_up(FRESH / 8, ARCS, 1000, 10)
    assert cost.times == 3 and cost.most(ARCS, 100) == first
    cost.gave_up(FRESH / 8, ARCS, 100, 10)
    assert (cost.times, cost.slow, cost.pause) == (1, 100, 1)


def test_updates_that_failed_may_visit_less_next_time():
    cost, most = model(), []
    for _ in range(4):
        most.append(cost.most(ARCS, 100))
        cost.gave_up(FRESH / 8, ARCS, 100, 10)
        cost.pause = 0
    assert most == [most[0], most[0], most[0] // 2, most[0] // 3]


def test_updates_that_differ_are_not_given_up_after_a_few_long_ones():
    """Their edges take a fifth of a full computation in the median, and one in eight gives up."""
    price, means = 2 * FRESH / ARCS, []
    for seed in range(6):
        rng, cost = np.random.default_rng(seed), model()
        needs = (ARCS / 10 * rng.lognormal(0, 0.8, 200)).astype(int)
        means.append(np.mean([spent(cost, 1000, n, price) for n in needs]))
    assert np.mean(means) < 0.6 * FRESH


def test_work_that_was_counted_and_never_tried_is_allowed_some_time():
    """A guessed price halves with each update that gives up before it visits an edge; a measured one does not."""
    cost, needs = model(), ARCS // 2
    reads = 0
    while cost.most(ARCS, 1000) < needs:
        cost.gave_up(FRESH / 1000, ARCS, 1000)
        reads += 1
    assert reads == 3
    cost.completed(4 * FRESH, ARCS, 1000, needs)
    cost.pause = cost.times = 0
    for _ in range(100):
        assert cost.most(ARCS, 1000) < needs
        cost.gave_up(FRESH / 1000, ARCS, 1000)


def test_an_update_that_gave_up_too_early_is_tried_again_at_once():
    """Edges that cost a quarter of what was thought; a short update of few edges does not raise their price."""
    cost, price = model(), 4 * FRESH / ARCS
    most = [cost.most(ARCS, 100)]
    for _ in range(2):
        cost.gave_up(price * most[-1] / 2, ARCS, 100, most[-1] // 2)
        most.append(cost.most(ARCS, 100))
    assert most == pytest.approx([ARCS / 16, ARCS / 8, ARCS / 4], rel=1e-3) and cost.times == 0
    cost.completed(FRESH / 3, ARCS, 100, 10 * FEW)
    assert cost.most(ARCS, 100) == most[-1]
    cost.gave_up(price * most[-1] / 2, ARCS, 100, most[-1] // 2)
    assert cost.most(ARCS, 100) == 0 and cost.times == 1


def test_a_slow_moment_is_forgotten():
    """The price of an update on a busy machine falls to the least that was measured."""
    cost, price = model(), FRESH / ARCS
    cost.completed(price * 10**6, ARCS, 0, 10**6)
    assert cost.rate == pytest.approx(8 * price)  # it halves at most, from a sixteenth
    for _ in range(5):
        cost.completed(price * 10**6, ARCS, 0, 10**6)
    assert cost.rate == pytest.approx(price)
    cost.completed(100 * price * 10**6, ARCS, 0, 10**6)
    cost.pause = cost.times = 0
    reads = 0
    while cost.most(ARCS, ARCS // 2) == 0:
        reads += 1
    assert reads == pytest.approx(np.log(50) / FADE, rel=0.1)
    cost.computed(10 * FRESH, ARCS)
    assert cost.seconds == 1.5 * FRESH


def test_a_full_computation_is_measured_again_after_some_updates_that_take_nearly_as_long():
    cost = model()
    for share, reads in ((0.4, 3 * LONGEST), (0.9, LONGEST)):
        for _ in range(reads):
            assert cost.most(ARCS, 1000) > 0
            cost.completed(share * FRESH, ARCS, 1000, 10)
    assert cost.most(ARCS, 1000) == 0
    cost.computed(0.8 * FRESH, ARCS)
    assert cost.seconds == 0.9 * FRESH and cost.most(ARCS, 1000) > 0


def test_a_guess_below_all_that_was_measured_does_not_rise():
    """A short update of few edges measures a high price, which is not taken, nor later by other updates."""
    cost = model()
    cost.gave_up(FRESH / 100, ARCS, 1000, FEW)
    guess = cost.most(ARCS, 1000)
    assert cost.least > cost._rate(ARCS)
    cost.gave_up(FRESH / 1000, ARCS, 1000)
    assert cost.most(ARCS, 1000) == guess


def test_a_small_graph_never_suspends_updates():
    cost = model()
    for _ in range(20):
        cost.gave_up(100 * FRESH, FEW, FEW)
        assert cost.most(FEW, FEW) == FEW
    assert cost.most(FEW + 1, FEW) == 0


def test_a_larger_graph_is_not_expected_to_take_longer_until_a_full_computation_has():
    """Components and BFS hardly do, and an estimate that is too long is never corrected."""
    cost = model()
    assert cost.fresh(2 * ARCS) == FRESH and cost.fresh(ARCS // 2) == FRESH / 2
    cost.completed(1.9 * FRESH, 2 * ARCS, 1000, 10)
    assert cost.times == 1
    for _ in range(6):
        cost.computed(2 * FRESH, 2 * ARCS)
    assert 1.9 * FRESH < cost.fresh(2 * ARCS) <= 2 * FRESH
    cost.completed(1.9 * FRESH, 2 * ARCS, 1000, 10)
    assert cost.times == 0
