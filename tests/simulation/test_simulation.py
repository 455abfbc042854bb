"""Seeds of the simulator hold what is promised, replay alone, and find the faults that are planted."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import planted
import preemption
import pytest
from promise_records import note
from simulated_cluster import Setting, simulated
from simulation import LINES, PRODUCT, SHAPES, Plan, Result, main, run, shrunk
from virtual_disk import Disk

#: by shape, of 22 seeds
SHARES = {
    "large": 5,
    "small": 8,
    "threads": 2,
    "log": 1,
    "durable": 1,
    "recoveries": 1,
    "interrupts": 1,
    "left behind": 1,
    "openings": 1,
    "partitions": 1,
}
SEEDS = 1_400  #: of `make test`: 2,000,000 events
MORE = 10_000  #: of the slow set, where MGRAPH_SEEDS says no other number
PART = 200  #: of a test of the slow set, all shapes together: seconds
#: faults that take seconds to find
LONG = (
    "every_client_gets_the_graphs_lock", "what_was_read_is_not_made_durable", "heads_name_what_is_not_synced",
    "names_are_not_synced", "a_withdrawn_request_gets_the_graphs_lock", "votes_before_the_record_is_synced",
    "a_store_has_no_locks_of_ranks", "a_lost_holder_leaves_its_state", "refusals_are_not_logged",
    "a_dead_client_keeps_the_graphs_lock", "two_threads_recover_a_graph",
)  # fmt: skip
TRIES = 8  #: seeds from the one that found a planted fault, for the case that the product takes other steps now


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    with simulated():
        yield


def check(seeds: range, shape: str) -> tuple[int, int]:
    """Run seeds; their events and acknowledged changes. The first that fails is shown with a smaller plan."""
    events = changes = 0
    for seed in seeds:
        result = run(plan := Plan.of(seed, shape))
        events, changes = events + result.steps, changes + result.acknowledged
        if result.problem is not None:
            small = shrunk(plan)
            print(*run(small).story, f"seed {seed}, {shape}, smaller: {small}", sep="\n")
            raise AssertionError(f"seed {seed}, {shape}: {result.problem}") from result.problem
        if seed % 50 == 49:
            gc.collect()
    print(f"{len(seeds)} {shape} seeds, {events} events, {changes} changes acknowledged")
    note("simulator", (shape, seeds), seeds=len(seeds), events=events, changes_acknowledged=changes)
    return events, changes


def seeds_of(shape: str, of_all: range) -> range:
    """Return the seeds of a shape in a range of all shapes'; adjacent ranges have adjacent seeds of each shape."""
    share, whole = SHARES[shape], sum(SHARES.values())
    return range(of_all.start * share // whole, of_all.stop * share // whole)


def parts() -> list[range]:
    """Return the parts of the slow set, a test each."""
    first, count = int(os.environ.get("MGRAPH_FIRST_SEED", 0)), int(os.environ.get("MGRAPH_SEEDS", MORE))
    return [range(start, min(start + PART, first + count)) for start in range(first, first + count, PART)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", SHAPES)
def test_seeds_hold_what_is_promised(installed, shape):
    seeds = seeds_of(shape, range(SEEDS))
    events, changes = check(seeds, shape)
    assert changes > len(seeds)
    assert events > 500 * len(seeds)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", parts(), ids=lambda part: f"{part.start}-{part.stop}")
def test_many_seeds_hold_what_is_promised(installed, part):
    for shape in SHAPES:
        check(seeds_of(shape, part), shape)


def test_a_killed_client_does_nothing_more(installed):
    batches = ((3, (), ()),) * 4
    setting = Setting("alone", 1, 1, "always", slow=0.0)
    plan = Plan(0, setting, ((("pipeline", batches),),), ((20, "kill client", 0, 0.1, "answer"),))
    result = run(plan)
    assert result.problem is None
    assert result.acknowledged == 1


def test_no_head_names_a_log_before_all_logs_are_there(installed, monkeypatch):
    operate = Disk._operate
    for seed in range(12):
        steps: list[tuple[str, str]] = []

        def note(files: Disk, what: str, path: str, steps: list[tuple[str, str]] = steps) -> None:
            operate(files, what, path)
            steps.append((what, path))

        monkeypatch.setattr(Disk, "_operate", note)
        run(Plan(seed, Setting("alone", 2, 1, "always", few=0.0), ((("pipeline", ((3, (), ()),)),),), ()))
        heads = [steps.index(("rename", f"/data/store/head-000{rank}.json")) for rank in (0, 1)]
        logs = [steps.index(("sync folder", f"/data/store/term-000001/rank-000{rank}")) for rank in (0, 1)]
        assert max(logs) < min(heads), seed


def test_the_parts_of_a_range_are_its_seeds(monkeypatch):
    monkeypatch.setenv("MGRAPH_FIRST_SEED", "1130")
    monkeypatch.setenv("MGRAPH_SEEDS", "2117")
    for shape in SHAPES:
        seeds = [seed for part in parts() for seed in seeds_of(shape, part)]
        assert seeds == [*seeds_of(shape, range(1130, 1130 + 2117))]
    assert sum(len(seeds_of(shape, part)) for shape in SHAPES for part in parts()) == pytest.approx(
        2117, abs=len(SHAPES)
    )


def test_a_seed_replays_in_another_process(installed):
    plans = [replace(Plan.of(0, "small"), lines=lines) for lines in ((), LINES)] + [Plan.of(45, "threads")]
    here = [_mark(run(plan)) for plan in plans]
    for _ in range(4):  # an order that follows addresses in memory differs now and then
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


def test_each_function_of_a_traced_file_has_points():
    for part in sorted({part for shape in SHAPES.values() for part in shape.traced}):
        paths = [path for path in PRODUCT.functions if part in path]
        assert paths, part
        for path in paths:
            names = {code.co_qualname for code in preemption.functions_of(preemption.compiled(path))}
            assert {name for name in names if "<" not in name} <= {
                code.co_qualname for _, code, _ in PRODUCT.codes(path)
            }


WORK = '''
def numbers(n):
    """Every kind of line."""
    total, table = 0, {}
    with open("/dev/null") as file:
        for k in range(n):
            if k % 3 == 1:
                continue
            total += sum(k + j for j in range(k))
            table[k] = [
                k,
                file.name,
            ]
    while total > 10:
        total //= 2
    try:
        raise ValueError(total)
    except ValueError as error:
        match error.args:
            case (int(), ):
                table["squares"] = [k * k for k in range(n) if k % 2]
    def inner(value):
        with file:
            return value
    return total, table
'''


def test_points_are_where_a_tracer_is_called(tmp_path):
    path = tmp_path / "work.py"
    path.write_text(WORK)
    places: dict[str, list[str]] = {"lines": [], "points": []}

    def trace(frame, event, argument):
        if frame.f_code.co_filename == str(path):
            if event == "line":
                places["lines"].append(frame.f_code.co_name)
            return trace
        return None

    def point(value=None):
        places["points"].append(sys._getframe(1).f_code.co_name)
        return value

    plain, pointed = {}, {preemption.POINT: point}
    exec(compile(WORK, path, "exec"), plain)
    exec(preemption.compiled(str(path)), pointed)
    sys.settrace(trace)
    try:
        result = plain["numbers"](7)
    finally:
        sys.settrace(None)
    assert pointed["numbers"](7) == result
    points, lines = Counter(places["points"]), Counter(places["lines"])
    print(points, lines)
    assert points.keys() == lines.keys()
    assert all(0.7 * lines[name] <= points[name] <= 1.3 * lines[name] for name in lines)


def test_a_failing_seed_prints_itself_and_shrinks(monkeypatch, capsys):
    planted.one_vote_suffices(monkeypatch)
    shape, seed = FOUND["one_vote_suffices"]
    monkeypatch.setattr(sys, "argv", ["simulation.py", str(seed), "--shape", shape])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"seed {seed}: ")
    (text,) = [line.removeprefix("smaller: ") for line in lines if line.startswith("smaller: ")]
    small = eval(text, {"Plan": Plan, "Setting": type(Plan.of(0).setting)})
    plan = Plan.of(seed, shape)
    assert sum(map(len, small.programs)) + len(small.faults) < sum(map(len, plan.programs)) + len(plan.faults)
    with simulated():
        assert run(small).problem is not None
    monkeypatch.undo()
    with simulated():
        assert run(small).problem is None


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.slow) if fault.__name__ in LONG else fault
        for fault in (*planted.RULES, *planted.LOCKS, *planted.WAITS)
    ],
)
def test_a_planted_fault_is_found(installed, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch):
    shape, first = FOUND[fault.__name__]
    for seed in range(first, first + TRIES):
        with monkeypatch.context() as patch:
            fault(patch)
            problem = run(Plan.of(seed, shape)).problem
        if problem is not None:
            print(f"seed {seed}: {problem}")
            return
    pytest.fail("nothing was found")


@pytest.mark.slow
def test_nothing_is_found_where_no_fault_is_planted(installed):
    for shape, first in sorted(set(FOUND.values())):
        for seed in range(first, first + TRIES):
            assert run(Plan.of(seed, shape)).problem is None, (shape, seed)


#: by planted fault, a shape of plans, and the first seed of it that finds the fault
FOUND = {
    "votes_before_the_record_is_synced": ("small", 9),
    "answers_before_the_sync_of_changes_in_flight": ("openings", 96),
    "refusals_are_not_logged": ("large", 0),
    "refusals_are_not_synced": ("large", 693),
    "refusals_count_behind_a_mark_that_is_not_written": ("openings", 71345),
    "refusals_are_not_read": ("large", 0),
    "a_part_of_a_change_suffices": ("large", 53),
    "what_was_read_is_not_made_durable": ("large", 98),
    "what_was_read_is_not_written_again": ("large", 98),
    "a_failed_sync_is_tried_again": ("openings", 445),
    "names_are_not_synced": ("large", 3),
    "heads_name_what_is_not_synced": ("large", 54),
    "one_vote_suffices": ("large", 0),
    "a_rank_in_doubt_discards": ("large", 216),
    "a_rank_in_doubt_commits": ("large", 65),
    "doubt_is_not_resolved": ("large", 92),
    "a_rank_forgets_its_doubt": ("large", 216),
    "attempts_have_one_number": ("large", 0),
    "epochs_are_not_checked": ("large", 0),
    "changes_in_the_store_are_made_again": ("large", 18),
    "a_client_believes_what_it_knew": ("large", 9),
    "a_lost_holder_leaves_its_state": ("large", 61),
    "the_largest_durable_epoch_counts": ("durable", 325),
    "a_read_error_is_the_end_of_a_file": ("openings", 176),
    "what_cannot_be_looked_up_is_not_there": ("openings", 23),
    "a_folder_that_cannot_be_listed_is_empty": ("openings", 1),
    "errors_of_the_syncs_of_folders_are_swallowed": ("openings", 101),
    "columns_are_read_without_their_checksum": ("openings", 13),
    "headers_are_read_without_their_checksum": ("openings", 16),
    "a_damaged_refusal_counts_as_none": ("openings", 277),
    "an_exchange_that_ends_refuses_the_change": ("partitions", 16),
    "what_was_decided_after_an_error_is_not_looked_at": ("partitions", 19),
    "calls_are_sent_without_a_lock": ("large", 110),
    "every_client_gets_the_graphs_lock": ("large", 0),
    "a_store_has_no_lock": ("large", 16),
    "a_sender_that_was_cancelled_keeps_its_place": ("interrupts", 1411),
    "two_threads_recover_a_graph": ("recoveries", 10),
    "a_store_has_no_locks_of_ranks": ("left behind", 7),
    "a_lock_is_taken_from_a_rank_that_keeps_it": ("partitions", 16),
    "waits_of_ranks_are_not_aborted": ("large", 227),
    "a_call_waits_for_all_ranks": ("large", 13),
    "a_silent_worker_is_not_lost": ("large", 123),
    "answers_of_a_lost_worker_are_awaited": ("large", 75),
    "a_dead_client_keeps_the_graphs_lock": ("large", 11),
    "a_withdrawn_request_gets_the_graphs_lock": ("large", 1393),
    "an_abort_is_not_acknowledged": ("large", 149),
    "waits_go_on_when_a_shard_is_stopped": ("large", 3),
}
