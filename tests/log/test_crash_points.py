"""Whatever dies at whatever moment: what was acknowledged is in the store, whole, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import stream_of_logs
from crashing import CrashingFiles
from promise_records import note
from stream_of_logs import stream

from mgraph.errors import StoreError
from mgraph.log import recovery_scan, store
from mgraph.log.log import Log
from mgraph.log.recovery_scan import KeptChanges, kept_changes
from mgraph.log.scan import Scan
from mgraph.log.segments import Segments


def seeds(count: int, first: int) -> list[int]:
    return list(range(first, first + count))


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_sample_of_crash_points(snapshots):
    points = refused = 0
    for seed in seeds(5, 100 + 1000 * snapshots):
        more, errors = stream(seed, openings=4, changes=8, every=0.15, snapshots=snapshots)
        points, refused = points + more, refused + errors
    print(points, "crash points,", refused, "changes refused")
    note("crash-points", crash_points=points, changes_refused=refused)
    assert points > 75
    assert refused > 2


# ---- the same with one of the rules left out: it is found ------------------------------------------------------------


def votes_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "_sync_upto", lambda log, place: None)


def refusals_are_not_logged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "refuse", lambda log: setattr(log, "_open", None))


def refusals_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    refuse, sync = Log.refuse, Segments.sync

    def unsynced(log: Log) -> None:
        patch.setattr(Segments, "sync", lambda segments: None)
        try:
            refuse(log)
        finally:
            patch.setattr(Segments, "sync", sync)

    patch.setattr(Log, "refuse", unsynced)


def refusals_are_not_read(patch: pytest.MonkeyPatch) -> None:
    def all_but_refusals(scans: list[Scan], *bounds: int | None) -> KeptChanges:
        return kept_changes([replace(s, entries=[e for e in s.entries if e.kind != "refused"]) for s in scans], *bounds)

    patch.setattr(recovery_scan, "kept_changes", all_but_refusals)


def a_share_suffices(patch: pytest.MonkeyPatch) -> None:
    def filled(scans: list[Scan], *bounds: int | None) -> KeptChanges:
        every = {(e.epoch, e.attempt): e for s in scans for e in s.entries if e.kind != "refused"}
        whole = [{**every, **{(e.epoch, e.attempt): e for e in s.entries if e.kind != "refused"}} for s in scans]
        refused = [e for s in scans for e in s.entries if e.kind == "refused"]
        return kept_changes(
            [replace(s, entries=[*w.values(), *refused]) for s, w in zip(scans, whole, strict=True)], *bounds
        )

    patch.setattr(recovery_scan, "kept_changes", filled)


def what_was_read_is_not_made_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store.Store, "sync", lambda store, log: None)


def the_most_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream_of_logs, "least", max)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CrashingFiles, "sync_folder", lambda files, path: None)


def heads_name_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "synced", property(lambda log: log.place))


def attempts_start_again_after_those_of_several_changes(patch: pytest.MonkeyPatch) -> None:
    def number(log: Log, epoch: int, last: int) -> int:
        log._again = log._again + 1 if log._last == (log.attempt, epoch) else 0
        log._last = log.attempt, epoch
        return log.attempt << 32 | log._again

    patch.setattr(Log, "_number", number)


#: much like others, or found by a late seed
ALIKE = (refusals_are_not_logged, refusals_are_not_synced, what_was_read_is_not_made_durable, the_most_is_durable)


@pytest.mark.parametrize(
    "left_out",
    [
        heads_name_what_is_not_synced,
        votes_before_it_is_synced,
        attempts_start_again_after_those_of_several_changes,
        refusals_are_not_read,
        a_share_suffices,
        names_are_not_synced,
        *(pytest.param(rule, marks=pytest.mark.slow) for rule in ALIKE),
    ],
)
def test_a_rule_that_is_left_out_is_found(left_out, monkeypatch):
    left_out(monkeypatch)
    for seed in seeds(60, 500):
        try:
            stream(seed, openings=4, changes=10, every=0.3, snapshots=False)
        except (AssertionError, StoreError) as found:
            print(seed, found)
            note("crash-points", rules_left_out_and_found=1)
            return
    pytest.fail("nothing was found")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("snapshots", [False, True])
def test_every_operation_is_a_crash_point(snapshots):
    points = refused = 0
    for seed in seeds(60, 10_000 + 10_000 * snapshots):
        more, errors = stream(seed, openings=5, changes=12, every=1.0, snapshots=snapshots)
        points, refused = points + more, refused + errors
    print(points, "crash points,", refused, "changes refused")
    note("crash-points", crash_points=points, changes_refused=refused)
    assert points > 5000
