"""The judge of a simulation: late answers of a graph that is lost, and the promises that hold all the same."""

from __future__ import annotations

import pytest
from simulated_history import Contents, History, Violation


def contents(history: History, *numbers: int) -> list[Contents]:
    """Return the contents of the only rank, with these changes."""
    edges = {(number, dst) for number in numbers for dst in range(history.edges[number])}
    return [(len(numbers), list(enumerate(numbers, 1)), edges)]


def told(forgetful: bool = True, damaged: bool = False) -> tuple[History, int]:
    """Return a history of three changes, the first of which is epoch 1 in the lineage that is returned."""
    history = History(forgetful=forgetful, damaged=damaged)
    lineage = history.open()
    for _ in range(3):
        history.begin(2)
    history.acknowledge(0, 1, lineage)
    return history, lineage


def reopened(history: History) -> int:
    """Open the store, which has the first change, and make the third one. Return the lineage."""
    lineage = history.open()
    history.read(contents(history, 0), history.begin_read(), lineage, opened=True)
    history.acknowledge(2, 2, lineage)
    return lineage


def test_a_late_answer_is_about_a_change_that_the_store_may_have_lost():
    history, before = told()
    history.power_off()
    after = reopened(history)
    history.acknowledge(1, 2, before)
    assert history.read(contents(history, 0, 2), history.begin_read(), after) == 2
    # The read did not have the change, so it never comes.
    history.begin(2)
    with pytest.raises(Violation, match="refused, and are there"):
        history.read(contents(history, 0, 2, 1), history.begin_read(), after)


def test_a_late_answer_asks_for_no_epoch_of_the_graph_that_is_opened_now():
    history, before = told()
    history.power_off()
    after = history.open()
    history.read(contents(history, 0), history.begin_read(), after, opened=True)
    history.acknowledge(1, 2, before)
    assert history.read(contents(history, 0), history.begin_read(), after) == 1


@pytest.mark.parametrize("opened", [False, True])
def test_a_late_read_has_changes_that_the_store_may_have_lost(opened):
    history, before = told()
    since = history.begin_read()
    history.power_off()
    after = reopened(history)
    assert history.read(contents(history, 0, 1), since, before, opened) == 2
    assert history.read(contents(history, 0, 2), history.begin_read(), after) == 2


def test_a_late_first_read_leaves_it_to_the_next_opening_what_the_machine_has_lost():
    history, before = told()
    since = history.begin_read()
    history.power_off()
    history.read(contents(history, 0), since, before, opened=True)
    assert history.read(contents(history), history.begin_read(), history.open(), opened=True) == 0


def test_late_answers_of_a_damaging_disk():
    history, before = told(forgetful=False, damaged=True)
    after = reopened(history)
    history.acknowledge(1, 2, before)
    assert history.read(contents(history, 0, 2), history.begin_read(), after) == 2


@pytest.mark.parametrize("late", ["acknowledge", "read"])
def test_without_a_loss_each_epoch_is_one_change(late):
    history, before = told(forgetful=False)
    since = history.begin_read()
    history.power_off()
    reopened(history)
    with pytest.raises(Violation, match="epoch 2 is change 1, and was change 2"):
        if late == "acknowledge":
            history.acknowledge(1, 2, before)
        else:
            history.read(contents(history, 0, 1), (1, since[1]), before)


def test_late_reads_have_whole_epochs():
    history, before = told()
    since = history.begin_read()
    history.power_off()
    reopened(history)
    epoch, events, edges = contents(history, 0, 1)[0]
    with pytest.raises(Violation, match="the edges of"):
        history.read([(epoch, events, edges - {(1, 0)})], since, before)


@pytest.mark.parametrize("torn", [False, True])
def test_a_refusal_that_looks_torn_brings_back_the_last_change_alone(torn):
    history, lineage = told()
    history.refuse(1)
    history.refuse(2)
    history.torn = torn
    if torn:
        assert history.read(contents(history, 0, 2), history.begin_read(), lineage, opened=True) == 2
    for numbers in [(0, 1, 2), (0, 1)] if torn else [(0, 2)]:
        with pytest.raises(Violation, match="refused, and are there|was change"):
            history.read(contents(history, *numbers), history.begin_read(), lineage)
