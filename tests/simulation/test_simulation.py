"""Seeds of the simulator hold what is promised, replay alone, and find the faults that are planted."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import planted
import pytest
from promise_records import note
from simulated_cluster import simulated
from simulation import Plan, Result, main, run, shrunk

SEEDS = 60  #: of `make test`
MORE = 10_000  #: of the slow set, where MGRAPH_SEEDS says no other number
TRIES = 8  #: seeds from the one that found a planted fault, for the case that the product takes other steps now


@pytest.fixture
def installed() -> Iterator[None]:
    with simulated():
        yield


def check(seeds: range) -> list[Result]:
    """Run seeds; the first that fails is shown with a smaller plan."""
    results = []
    for seed in seeds:
        plan = Plan.of(seed)
        results.append(result := run(plan))
        if result.problem is not None:
            small = shrunk(plan)
            print(*run(small).story, f"seed {seed}, smaller: {small}", sep="\n")
            raise AssertionError(f"seed {seed}: {result.problem}") from result.problem
        if seed % 50 == 0:
            gc.collect()
    steps, changes = sum(result.steps for result in results), sum(result.acknowledged for result in results)
    note("simulator", seeds=len(results), steps=steps, changes_acknowledged=changes)
    return results


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [0, SEEDS // 2])
def test_seeds_hold_what_is_promised(installed, first):
    results = check(range(first, first + SEEDS // 2))
    changes, steps = sum(result.acknowledged for result in results), sum(result.steps for result in results)
    print(f"{len(results)} seeds, {steps} steps, {changes} changes acknowledged")
    assert changes > 5 * len(results)
    assert steps > 1000 * len(results)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_seeds_hold_what_is_promised(installed):
    first, count = int(os.environ.get("MGRAPH_FIRST_SEED", SEEDS)), int(os.environ.get("MGRAPH_SEEDS", MORE))
    check(range(first, first + count))


def test_a_seed_replays_in_another_process(installed):
    plans = [replace(Plan.of(seed), lines=lines) for seed in range(2) for lines in (False, True)]
    here = [_mark(run(plan)) for plan in plans]
    assert here == [_mark(run(plan)) for plan in plans]
    assert len(set(here)) == len(here)
    code = (
        "from simulation import *; from simulated_cluster import *; from test_simulation import _mark\n"
        f"with simulated(): print([_mark(run(plan)) for plan in {plans!r}])"
    )
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), *sys.path]
    other = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == repr(here)


def _mark(result: Result) -> tuple[int, float, float]:
    return result.steps, result.seconds, result.mark


def test_a_failing_seed_prints_itself_and_shrinks(monkeypatch, capsys):
    planted.one_vote_suffices(monkeypatch)
    seed = FOUND["one_vote_suffices"]
    monkeypatch.setattr(sys, "argv", ["simulation.py", str(seed)])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"seed {seed}: ")
    (text,) = [line.removeprefix("smaller: ") for line in lines if line.startswith("smaller: ")]
    small = eval(text, {"Plan": Plan, "Setting": type(Plan.of(0).setting)})
    plan = Plan.of(seed)
    assert sum(map(len, small.programs)) + len(small.faults) < sum(map(len, plan.programs)) + len(plan.faults)
    with simulated():
        assert run(small).problem is not None
    monkeypatch.undo()
    with simulated():
        assert run(small).problem is None


@pytest.mark.parametrize("fault", [*planted.RULES, *planted.LOCKS, *planted.WAITS])
def test_a_planted_fault_is_found(installed, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch):
    for seed in range(FOUND[fault.__name__], FOUND[fault.__name__] + TRIES):
        plan = Plan.of(seed)
        assert run(plan).problem is None
        with monkeypatch.context() as patch:
            fault(patch)
            problem = run(plan).problem
        if problem is not None:
            print(f"seed {seed}: {problem}")
            return
    pytest.fail("nothing was found")


#: by planted fault, the first seed that finds it
FOUND = {
    "votes_before_the_record_is_synced": 0,
    "answers_before_the_sync_of_changes_in_flight": 176,
    "refusals_are_not_logged": 0,
    "refusals_are_not_synced": 61,
    "refusals_are_not_read": 0,
    "a_part_of_a_change_suffices": 3,
    "what_was_read_is_not_made_durable": 18,
    "names_are_not_synced": 3,
    "heads_name_what_is_not_synced": 44,
    "one_vote_suffices": 0,
    "a_rank_in_doubt_discards": 271,
    "a_rank_in_doubt_commits": 21,
    "doubt_is_not_resolved": 21,
    "a_rank_forgets_its_doubt": 271,
    "attempts_have_one_number": 0,
    "epochs_are_not_checked": 0,
    "changes_in_the_store_are_made_again": 3,
    "a_client_believes_what_it_knew": 0,
    "a_lost_holder_leaves_its_state": 61,
    "calls_are_sent_without_a_lock": 80,
    "every_client_gets_the_graphs_lock": 0,
    "a_store_has_no_lock": 5,
    "waits_of_ranks_are_not_aborted": 227,
    "a_call_waits_for_all_ranks": 3,
    "a_silent_worker_is_not_lost": 76,
    "answers_of_a_lost_worker_are_awaited": 75,
    "a_dead_client_keeps_the_graphs_lock": 11,
    "a_withdrawn_request_gets_the_graphs_lock": 742,
    "an_abort_is_not_acknowledged": 149,
}
