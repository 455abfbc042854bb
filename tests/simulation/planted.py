"""Faults that are planted in the product: each rule left out, each lock removed, each wait without an end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from crashing import CrashingFiles, Inode
from virtual_disk import Disk, ReadFile

from mgraph.client.calls import exchange_lifecycle, send_lock
from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.graph_lock import GraphLock
from mgraph.client.connections.session import Session
from mgraph.client.connections.sessions import Sessions
from mgraph.client.stores import storing
from mgraph.client.stores.recovery import Recovering
from mgraph.errors import Aborted, MgraphError, StoreError
from mgraph.log import records, recovery_scan, scan
from mgraph.log.log import Log
from mgraph.log.record_columns import RecordColumns
from mgraph.log.recovery_scan import KeptChanges, kept_changes
from mgraph.log.scan import Scan
from mgraph.log.segments import Segments
from mgraph.log.store import Store
from mgraph.worker.calls import changes
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.sessions import published
from mgraph.worker.sessions.published import LockQueue
from mgraph.worker.sessions.thread import ShardThread
from mgraph.worker.stores.storage import Storage

__all__ = ["LOCKS", "NOT_FOUND", "RULES", "WAITS"]

Patch = pytest.MonkeyPatch


# ---- rules -----------------------------------------------------------------------------------------------------------


def votes_before_the_record_is_synced(patch: Patch) -> None:
    def believe(log: Log, place: int) -> None:
        log._segments.synced = max(log._segments.synced, place)

    patch.setattr(Log, "_sync_upto", believe)


def answers_before_the_sync_of_changes_in_flight(patch: Patch) -> None:
    patch.setattr(Ballot, "safe", None)


def refusals_are_not_logged(patch: Patch) -> None:
    patch.setattr(Log, "refuse", lambda log: setattr(log, "_open", None))


def refuse_without(patch: Patch, step: str) -> None:
    """Leave out a step of the segments while a log refuses a change."""
    refuse = Log.refuse

    def without(log: Log) -> None:
        setattr(log._segments, step, lambda: None)
        try:
            refuse(log)
        finally:
            delattr(log._segments, step)

    patch.setattr(Log, "refuse", without)


def refusals_are_not_synced(patch: Patch) -> None:
    refuse_without(patch, "sync")


def refusals_count_behind_a_mark_that_is_not_written(patch: Patch) -> None:
    refuse_without(patch, "check_appended")


def of_changes_that_cannot_be_refused_the_first_says_so(patch: Patch) -> None:
    refuse = Log.refuse

    def first(log: Log) -> None:
        change = log._open
        try:
            refuse(log)
        except StoreError as error:
            assert change is not None
            error.undecided = change.records[0].epoch
            raise

    patch.setattr(Log, "refuse", first)


def a_graph_goes_on_after_a_change_that_could_not_be_refused(patch: Patch) -> None:
    patch.setattr(exchange_lifecycle, "_undecided", lambda states: 0)


def refusals_are_not_read(patch: Patch) -> None:
    def unrefused(scans: list[Scan], *bounds: int | None) -> KeptChanges:
        return kept_changes([replace(s, entries=[e for e in s.entries if e.kind != "refused"]) for s in scans], *bounds)

    patch.setattr(recovery_scan, "kept_changes", unrefused)


def a_part_of_a_change_suffices(patch: Patch) -> None:
    def filled(scans: list[Scan], *bounds: int | None) -> KeptChanges:
        records = {(e.epoch, e.attempt): e for s in scans for e in s.entries if e.kind != "refused"}
        refused = [e for s in scans for e in s.entries if e.kind == "refused"]
        parts = [{**records, **{(e.epoch, e.attempt): e for e in s.entries if e.kind != "refused"}} for s in scans]
        return kept_changes(
            [replace(s, entries=[*p.values(), *refused]) for s, p in zip(scans, parts, strict=True)], *bounds
        )

    patch.setattr(recovery_scan, "kept_changes", filled)


def what_was_read_is_not_made_durable(patch: Patch) -> None:
    patch.setattr(Store, "sync", lambda store, log: None)


def what_was_read_is_not_written_again(patch: Patch) -> None:
    sync = Store.sync
    patch.setattr(Store, "sync", lambda store, log: sync(store, replace(log, unsynced=(0, 0))))


def a_failed_sync_is_tried_again(patch: Patch) -> None:
    patch.setattr(Segments, "_sync_file", lambda segments: segments._file.sync())


def names_are_not_synced(patch: Patch) -> None:
    patch.setattr(Disk, "sync_folder", lambda files, path: None)


def errors_of_the_syncs_of_folders_are_swallowed(patch: Patch) -> None:
    sync_folder = Disk.sync_folder

    def swallowed(files: Disk, path: str) -> None:
        with suppress(OSError):
            sync_folder(files, path)

    patch.setattr(Disk, "sync_folder", swallowed)


def a_folder_whose_name_was_not_synced_is_kept(patch: Patch) -> None:
    change = Disk._change

    def kept(files: Disk, old: str | None, new: str | None, inode: Inode | None) -> None:
        if new is not None or inode is not None:
            change(files, old, new, inode)

    patch.setattr(Disk, "_change", kept)


def columns_are_read_without_their_checksum(patch: Patch) -> None:
    def filled(columns: RecordColumns, entry: Any, wanted: Any) -> bool:
        return all(columns._read(entry, at, [column]) for at, column in wanted)

    patch.setattr(RecordColumns, "_filled", filled)


def headers_are_read_without_their_checksum(patch: Patch) -> None:
    patch.setattr(records, "is_header", lambda head: head[:4] == records.MAGIC)


def a_damaged_refusal_counts_as_none(patch: Patch) -> None:
    patch.setattr(scan, "_add_refusals", lambda result, head, later: None)


def heads_name_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(Log, "synced", property(lambda log: log.place))


def one_vote_suffices(patch: Patch) -> None:
    vote = Ballot._vote

    def own(ballot: Ballot, ready: bool) -> bool:
        vote(ballot, ready)
        return ready

    patch.setattr(Ballot, "_vote", own)


def an_exchange_that_ends_refuses_the_change(patch: Patch) -> None:
    vote = Ballot._vote

    def refused(ballot: Ballot, ready: bool) -> bool:
        try:
            return vote(ballot, ready)
        except Aborted:
            if ballot.shard.exchange.aborted():
                raise
            return False

    patch.setattr(Ballot, "_vote", refused)


def what_was_decided_after_an_error_is_not_looked_at(patch: Patch) -> None:
    async def finish_call(exchange: ExchangeLifecycle, call: Any, asked: Any, epoch: Any, ranks: Any = None) -> Any:
        try:
            return await exchange.finish(asked, call.exchange, ranks)
        except MgraphError as error:
            error.during = epoch
            raise

    patch.setattr(ExchangeLifecycle, "finish_call", finish_call)


def a_lock_is_taken_from_a_rank_that_keeps_it(patch: Patch) -> None:
    lock = Store.lock

    def taken(store: Store, *names: Any, **options: Any) -> Any:
        try:
            return lock(store, *names, **options)
        except StoreError as error:
            if error.reason != "in use":
                raise
            return _NoLock()

    patch.setattr(Store, "lock", taken)


def a_rank_in_doubt_discards(patch: Patch) -> None:
    resolve = Ballot.resolve
    patch.setattr(Ballot, "resolve", lambda ballot, changes: resolve(ballot, 0))


def a_rank_in_doubt_commits(patch: Patch) -> None:
    resolve = Ballot.resolve
    patch.setattr(Ballot, "resolve", lambda ballot, changes: resolve(ballot, 1 << 60))


def doubt_is_not_resolved(patch: Patch) -> None:
    async def nothing(exchange: ExchangeLifecycle, changes: int) -> None:
        """Tell the ranks nothing."""

    patch.setattr(ExchangeLifecycle, "_resolve", nothing)


def a_rank_forgets_its_doubt(patch: Patch) -> None:
    patch.setattr(Ballot, "in_doubt", property(lambda ballot: None, lambda ballot, change: None), raising=False)


def attempts_have_one_number(patch: Patch) -> None:
    patch.setattr(Log, "_number", lambda log, *epochs: 0)


def epochs_are_not_checked(patch: Patch) -> None:
    patch.setattr(changes, "_check_epoch", lambda rank, epoch: rank.shard)


def changes_in_the_store_are_made_again(patch: Patch) -> None:
    patch.setattr(Recovering, "outcome", lambda caller, number, epoch: None)


def a_client_believes_what_it_knew(patch: Patch) -> None:
    async def nothing(lock: GraphLock, number: int, state: bytes | None) -> None:
        lock._knows = True

    patch.setattr(GraphLock, "_take_over", nothing)


def a_lost_holder_leaves_its_state(patch: Patch) -> None:
    def leave(queue: LockQueue, who: object) -> None:
        holder = queue._holder
        if holder is not None and holder.who is who:
            queue.end(who, holder.seq, None, None)

    patch.setattr(LockQueue, "leave", leave)


def the_largest_durable_epoch_counts(patch: Patch) -> None:
    patch.setattr(storing, "min", max, raising=False)


def attempts_of_a_holder_follow_those_of_a_lost_one(patch: Patch) -> None:
    patch.setattr(published, "SPAN", 1)


def a_read_error_is_the_end_of_a_file(patch: Patch) -> None:
    read = ReadFile.read

    def upto(contents: ReadFile, at: int, parts: Any) -> int:
        try:
            return read(contents, at, parts)
        except OSError:
            return 0

    patch.setattr(ReadFile, "read", upto)
    patch.setattr(Disk, "contents", lambda files, path: ReadFile(files, path, CrashingFiles.read(files, path)))


def what_cannot_be_looked_up_is_not_there(patch: Patch) -> None:
    exists = Disk.exists

    def seen(files: Disk, path: str) -> bool:
        try:
            return exists(files, path)
        except OSError:
            return False

    patch.setattr(Disk, "exists", seen)


def a_folder_that_cannot_be_listed_is_empty(patch: Patch) -> None:
    names = Disk.names

    def listed(files: Disk, path: str) -> list[str]:
        try:
            return names(files, path)
        except OSError:
            return []

    patch.setattr(Disk, "names", listed)


# ---- locks -----------------------------------------------------------------------------------------------------------


class _NoLock:
    def acquire(self, *options: object, **named: object) -> bool:
        return True

    def release(self) -> None:
        """Nothing is held."""

    __enter__ = acquire
    close = release

    def __exit__(self, *exc: object) -> None:
        """Nothing is held."""


def calls_are_sent_without_a_lock(patch: Patch) -> None:
    async def nothing(lock: Any, *exc: object) -> None:
        """Wait for nobody."""

    patch.setattr(send_lock.SendLock, "__aenter__", nothing)
    patch.setattr(send_lock.SendLock, "__aexit__", nothing)


def every_client_gets_the_graphs_lock(patch: Patch) -> None:
    patch.setattr(
        LockQueue, "ask", lambda queue, who, seq, give, want: give({"attempt": queue._attempt, "known": queue._known})
    )


def _unlocked(patch: Patch, kind: Any, name: str) -> None:
    make = kind.__init__

    def init(thing: Any, *args: Any, **options: Any) -> None:
        make(thing, *args, **options)
        setattr(thing, name, _NoLock())

    patch.setattr(kind, "__init__", init)


def places_in_a_log_are_claimed_without_a_lock(patch: Patch) -> None:
    _unlocked(patch, Segments, "_lock")


def a_log_is_appended_to_without_a_lock(patch: Patch) -> None:
    _unlocked(patch, Segments, "_appending")


def a_sync_goes_on_beside_one_that_fails(patch: Patch) -> None:
    _unlocked(patch, Segments, "_syncing")


def two_threads_recover_a_graph(patch: Patch) -> None:
    _unlocked(patch, Recovering, "_lock")


def the_send_lock_has_no_mutex(patch: Patch) -> None:
    _unlocked(patch, send_lock.SendLock, "_mutex")


def a_sender_that_was_cancelled_keeps_its_place(patch: Patch) -> None:
    async def enter(lock: send_lock.SendLock) -> None:
        loop = asyncio.get_running_loop()
        task, future = asyncio.current_task(), loop.create_future()
        if lock._holder is None and not lock._waiting:
            lock._holder = task
            return
        lock._waiting.append((loop, future))
        await future
        lock._holder = task

    patch.setattr(send_lock.SendLock, "__aenter__", enter)


def a_client_returns_the_graphs_lock_while_it_sends(patch: Patch) -> None:
    make = GraphLock.__init__

    def init(lock: GraphLock, *args: Any) -> None:
        make(lock, *args)
        lock._send_lock = send_lock.SendLock()

    patch.setattr(GraphLock, "__init__", init)


def threads_share_the_graphs_lock(patch: Patch) -> None:
    _unlocked(patch, GraphLock, "_lock")


def a_store_has_no_locks_of_ranks(patch: Patch) -> None:
    patch.setattr(Store, "lock_rank", lambda store, *names: _NoLock())


def a_store_has_no_lock(patch: Patch) -> None:
    patch.setattr(Store, "lock", lambda store, *names, **options: _NoLock())


def a_late_rank_begins_the_newest_term(patch: Patch) -> None:
    patch.setattr(Storage, "_newest", lambda storage: storage.store.terms()[-1])


# ---- waits without an end --------------------------------------------------------------------------------------------


def waits_of_ranks_are_not_aborted(patch: Patch) -> None:
    patch.setattr(ShardThread, "aborted", lambda thread: thread._stopping)


def a_call_waits_for_all_ranks(patch: Patch) -> None:
    async def collect(sessions: Sessions, asked: Any) -> bool:
        await asyncio.wait(asked)
        return all(task.exception() is None for task in asked)

    patch.setattr(Sessions, "collect", collect)


def a_silent_worker_is_not_lost(patch: Patch) -> None:
    async def watch(session: Session) -> None:
        await asyncio.get_running_loop().create_future()

    patch.setattr(Session, "_watch", watch)


def answers_of_a_lost_worker_are_awaited(patch: Patch) -> None:
    a_silent_worker_is_not_lost(patch)
    patch.setattr(Session, "_ended", lambda session, task: task.cancelled() or task.exception())


def a_dead_client_keeps_the_graphs_lock(patch: Patch) -> None:
    patch.setattr(LockQueue, "leave", lambda queue, who: None)


def a_withdrawn_request_gets_the_graphs_lock(patch: Patch) -> None:
    end = LockQueue.end

    def only_holders(queue: LockQueue, who: object, seq: int, attempt: int | None, known: bytes | None) -> None:
        if attempt is not None:
            end(queue, who, seq, attempt, known)

    patch.setattr(LockQueue, "end", only_holders)


def an_abort_is_not_acknowledged(patch: Patch) -> None:
    def work(thread: ShardThread, servant: Any, asked: Any, work: Any = ShardThread._work) -> Any:
        answer = work(thread, servant, asked)
        return answer if hasattr(asked.request, "method") else lambda: {"after": asyncio_never()}

    def asyncio_never() -> Any:
        from concurrent.futures import Future

        return Future()

    patch.setattr(ShardThread, "_work", work)


def waits_go_on_when_a_shard_is_stopped(patch: Patch) -> None:
    patch.setattr(ShardThread, "aborted", lambda thread: thread._attempt <= thread._aborted_attempt)


RULES = [
    votes_before_the_record_is_synced, answers_before_the_sync_of_changes_in_flight, refusals_are_not_logged,
    refusals_are_not_synced, refusals_count_behind_a_mark_that_is_not_written, refusals_are_not_read,
    a_part_of_a_change_suffices, what_was_read_is_not_made_durable,
    what_was_read_is_not_written_again, a_failed_sync_is_tried_again, names_are_not_synced,
    heads_name_what_is_not_synced, one_vote_suffices, a_rank_in_doubt_discards, a_rank_in_doubt_commits,
    doubt_is_not_resolved, a_rank_forgets_its_doubt, attempts_have_one_number, epochs_are_not_checked,
    changes_in_the_store_are_made_again, a_client_believes_what_it_knew, a_lost_holder_leaves_its_state,
    the_largest_durable_epoch_counts, a_read_error_is_the_end_of_a_file, what_cannot_be_looked_up_is_not_there,
    a_folder_that_cannot_be_listed_is_empty, errors_of_the_syncs_of_folders_are_swallowed,
    columns_are_read_without_their_checksum, headers_are_read_without_their_checksum, a_damaged_refusal_counts_as_none,
    an_exchange_that_ends_refuses_the_change, what_was_decided_after_an_error_is_not_looked_at,
]  # fmt: skip
LOCKS = [
    calls_are_sent_without_a_lock, every_client_gets_the_graphs_lock, a_store_has_no_lock,
    two_threads_recover_a_graph, a_store_has_no_locks_of_ranks, a_sender_that_was_cancelled_keeps_its_place,
    a_lock_is_taken_from_a_rank_that_keeps_it,
]  # fmt: skip
WAITS = [
    waits_of_ranks_are_not_aborted, a_call_waits_for_all_ranks,
    a_silent_worker_is_not_lost, answers_of_a_lost_worker_are_awaited, a_dead_client_keeps_the_graphs_lock,
    a_withdrawn_request_gets_the_graphs_lock, an_abort_is_not_acknowledged, waits_go_on_when_a_shard_is_stopped,
]  # fmt: skip
#: those that no seed finds, and the test that does: docs/contributing/simulator.md says why
NOT_FOUND = {
    a_sync_goes_on_beside_one_that_fails: "tests/log/test_segments.py",
    places_in_a_log_are_claimed_without_a_lock: "tests/log/test_segments.py",
    a_log_is_appended_to_without_a_lock: "tests/log/test_segments.py",
    attempts_of_a_holder_follow_those_of_a_lost_one: "tests/worker/sessions/test_published.py",
    a_folder_whose_name_was_not_synced_is_kept: "tests/log/test_files.py",
    the_send_lock_has_no_mutex: "tests/client/test_send_lock.py",
    threads_share_the_graphs_lock: "tests/client/calls/test_graph_lock.py",
    a_late_rank_begins_the_newest_term: "tests/worker/stores/test_storage.py",
    a_client_returns_the_graphs_lock_while_it_sends: "tests/client/calls/test_graph_lock.py",
    of_changes_that_cannot_be_refused_the_first_says_so: "tests/log/test_group_commit.py",
    a_graph_goes_on_after_a_change_that_could_not_be_refused: "tests/client/calls/test_exchange_lifecycle.py",
}
