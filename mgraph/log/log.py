"""Log of a rank: writes each change of content while it is prepared, and tracks how far it is durable.

A change goes through `begin`, `ready`, and then `keep` or `refuse`. After a crash, acknowledged changes are in the log
and refused ones are not, by these rules:

1. With ``sync="always"``, `ready` returns when the record is on the disk, and only then does the rank vote. A change
   that is begun `ahead`, because others follow, is voted on once its record is written. Its answer waits for the sync,
   `safe`, which several changes may share.
2. `refuse` returns when the refusal is on the disk. Only then is the error raised, or another change begun.
3. `mgraph.log.recovery_scan` reads the logs after a crash.

Several changes may be decided together. Each has a record and an epoch of its own; the records are written at once, and
kept or refused together. A crash may leave the first of them.

With ``sync="background"``, `ready` returns when the record is written. With a tail, `keep` returns when the tail has
the record, which is written to the file later. Another thread syncs all the time. So a killed process loses nothing,
and a machine that stops loses the changes after `durable`. `ready` also waits while more than `Lag.nbytes` are not
synced, or the oldest of them for longer than `Lag.seconds`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import Aborted, StoreError
from mgraph.log.files import failed
from mgraph.log.records import WITHIN, Draft, SnapshotState, draft
from mgraph.log.segments import Segments, size_of
from mgraph.log.shared_memory_tail import Copy, SharedMemoryTail
from mgraph.log.write_behind import WriteBehind

__all__ = ["SYNCS", "Lag", "Log"]

SYNCS = ("always", "background")
POLL_SECONDS = 0.05  #: time between two checks of `aborted` in a wait


@dataclass(frozen=True)
class Lag:
    """Limits of the bytes that are not on the disk, and of their age."""

    nbytes: int = 256 << 20
    seconds: float = 1.0


@dataclass
class _Open:
    """The change under way, or several that are decided together."""

    records: Sequence[Draft]
    place: int
    end: int  #: the place behind the records
    offset: tuple[str, int] | None
    written: Future[None] | None = None  #: None while the records are copied to the tail

    @property
    def ahead(self) -> bool:
        return self.records[0].ahead


class Log:
    """Writes a rank's records in a thread of its own.

    The shard's thread makes all calls.

    Parameters
    ----------
    segments : Segments
    sync : "always" | "background"
    epoch : int
        The epoch of the graph when the log begins, which is durable.
    name : str
        The name of its threads.
    aborted : callable
        Polled while `ready` waits.
    lag : Lag
    snapshot_bytes : int
        Bytes since the last snapshot after which another one is wanted; 0 for never.
    executor : callable
        ``executor(name)`` makes the executors of writes, of syncs and, with ``sync="always"``, of hashes.

    Attributes
    ----------
    attempt : int
        The number of the exchange of the ranks, which tells the attempts at one epoch apart; the same on all ranks.
    broken : str or None
        Why nothing can be logged any more.
    undecided : int
        After a failure of `refuse`, the last epoch that was not made and that the store may have; 0 if none.
    offsets : dict of str to int
        The last committed place in each source.
    last : str
        The kind of the last committed change.
    common : int
        An epoch that this rank knows to be on the disks of all ranks, and that none can refuse.
    since : int
        The place at which the log since the last snapshot begins.
    snapshot : callable
        Takes a snapshot.
    busy : callable
        Returns True while a snapshot is being written.
    safe : Future or None
        Ends when the last change that was begun `ahead` is on the disk.
    """

    def __init__(
        self,
        segments: Segments,
        sync: str,
        epoch: int,
        *,
        name: str = "mgraph-log",
        aborted: Callable[[], bool] = lambda: False,
        lag: Lag | None = None,
        snapshot_bytes: int = 0,
        executor: Callable[[str], Executor] | None = None,
    ) -> None:
        # One thread each for writes and syncs; hashes need their own where a change waits for its sync.
        make = executor or (lambda name: ThreadPoolExecutor(1, thread_name_prefix=name))
        self._segments, self._sync, self._aborted, self._lag = segments, sync, aborted, lag or Lag()
        self._writer = make(f"{name}-write")
        self._syncer = make(f"{name}-sync")
        self._hasher = make(f"{name}-hash") if sync == "always" else None
        self.attempt, self._last, self._again = 0, (-1, -1), 0  # the last attempt, and the newest epoch begun in it

        # The state that its graph reads and sets.
        self.broken: str | None = None
        self.undecided = 0
        self.since, self._snapshot_bytes = 0, snapshot_bytes
        self.snapshot: Callable[[], None] = lambda: None
        self.busy: Callable[[], bool] = lambda: False
        self.offsets: dict[str, int] = {}
        self.last = ""

        # The change under way, and those that may not be on the disk.
        self._open: _Open | None = None
        self._put_off: Callable[[], None] | None = None  # the rest of `begin`
        self._problem: Exception | None = None  # the error of `_put_off`
        self._durable = self.common = epoch
        self._kept: deque[tuple[int, int, float]] = deque()  # maybe not durable: place behind, epoch, time
        self._written: Future[None] | None = None  # the write of the last kept change
        self._syncing: Future[None] | None = None
        self._behind: WriteBehind | None = None
        self.safe: Future[None] | None = None

    # ---- a change ----------------------------------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        columns: Mapping[str, Any],
        epoch: int,
        ahead: bool = False,
        more: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Begin to write the record of a change that makes `epoch`, or belongs to it.

        The columns must not change until `keep`. The answer to an `ahead` change waits until `safe` has ended. A batch
        that goes from a GPU to a tail is put off until `proceed`. `more` has the columns of changes that are decided
        together with this one, and make the next epochs.

        Raises
        ------
        StoreError
            There is no room, or the log is broken. Nothing was written.
        """
        attempt = self._number(epoch, epoch + len(more))  # first, since all ranks must count alike
        self._check()
        assert self._open is None, "the change before this one was neither kept nor refused"
        behind = self._behind
        work = partial(self._begin, behind, kind, [columns, *more], epoch, attempt, ahead)
        if behind is None:
            work()
            return
        behind.mark()
        if kind == "batch" and not isinstance(columns["src"], np.ndarray):
            self._put_off = work
        else:  # host memory takes long to copy
            work()

    def _check(self) -> None:
        """Raise `StoreError` if the log is broken."""
        if self.broken is not None:
            raise StoreError(f"{self.broken}; nothing more can be logged: open the store again")

    def proceed(self) -> None:
        """Do the work that `begin` put off: 60 us that a GPU's kernels may cover.

        `ready` raises its error.
        """
        work, self._put_off = self._put_off, None
        if work is not None:
            try:
                work()
            except Exception as error:
                self._problem = error

    def _begin(
        self,
        behind: WriteBehind | None,
        kind: str,
        columns: Sequence[Mapping[str, Any]],
        epoch: int,
        attempt: int,
        ahead: bool,
    ) -> None:
        # Claim a place for the records. All but the first come ahead of the sync of those before them.
        if self._segments.full:
            self._rotate()
        always = self._sync == "always"
        records = [draft(kind, c, epoch + i, attempt, always and (ahead or i > 0)) for i, c in enumerate(columns)]
        try:
            place = self._segments.claim(size := size_of(records), len(records))
        except OSError as error:
            raise failed(error, self._segments.path, "no room in the log") from error

        # Copy them to the tail, or write them from host memory.
        change = _Open(records, place, place + size, columns[-1].get("offset"))
        try:
            self._open = change
            if behind is None or not behind.begin(records, place):
                for record in records:
                    record.parts = [Device.staged(part) for part in record.parts]
                change.written = self._writer.submit(self._write, records, place)
        except BaseException as error:  # the place is claimed: `refuse` fills it
            change.written = Future()
            change.written.set_exception(error)
            raise

    def _number(self, epoch: int, last: int) -> int:
        """Return the attempt at the epochs up to `last`, greater than those before at any of them.

        A new exchange begins a new count. A single rank keeps its exchange after a refusal, and so do all ranks after
        the refusal of changes that were decided together: they count on.
        """
        newest = self._last[1] if self._last[0] == self.attempt else -1
        self._again = self._again + 1 if epoch <= newest else 0
        self._last = self.attempt, max(last, newest)
        return self.attempt << 32 | self._again

    def _write(self, records: Sequence[Draft], place: int) -> None:
        try:
            self._segments.put(records, place, self._hasher)
        except OSError as error:
            raise failed(error, self._segments.path, "the log cannot be written:") from error
        end = place + size_of(records)
        if self._sync == "background":
            self._syncing = self._syncer.submit(self._sync_upto, end)
        elif not records[0].ahead:
            self._sync_upto(end)

    def _write_held(self, records: Sequence[Draft], place: int) -> None:
        """Write records that may have been acknowledged; a failure breaks the log."""
        try:
            self._write(records, place)
        except StoreError as error:
            self.broken = self.broken or str(error)
            raise

    def _sync_upto(self, place: int) -> None:
        """Sync up to `place`, unless a later sync has done so.

        A failure breaks the log: the disk's state is unknown.
        """
        try:
            if self._segments.synced < place:
                self._segments.sync()
            self._segments.rotate_if_due()
        except OSError as error:
            problem = failed(error, self._segments.path, "the log cannot be synced:")
            self.broken = self.broken or str(problem)
            raise problem from error

    def ready(self) -> None:
        """Wait until the record is as safe as a vote for its change needs.

        Raises
        ------
        StoreError
            It cannot be written.
        Aborted
            The call was aborted meanwhile.
        """
        # Have the record written; `proceed` may have failed before.
        self.proceed()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        change = self._open
        assert change is not None, "nothing was begun"
        if change.written is not None:
            self._wait(change.written)
        if change.written is not None or not self._segments.has_all_before(change.place):
            try:
                self._segments.await_appended()
            except OSError as error:
                raise failed(error, self._segments.path, "the log cannot be written:") from error

        # Begin its sync, and wait while the disk lags too far behind.
        if change.ahead:
            self.safe = self._syncing = self._syncer.submit(self._sync_upto, change.end)
        while self._sync == "background" and self._late():
            written = self._hand_over(change)
            self._hurry()
            self._wait(written)
            self._wait(self._syncing)

    def _hand_over(self, change: _Open) -> Future[None]:
        """Return the future of the write. A record in shared memory is complete on return."""
        if change.written is None:
            assert self._behind is not None
            change.written = self._behind.enqueue(change.records, change.place)
        return change.written

    def _hurry(self) -> None:
        if self._behind is not None:
            self._behind.hurry()

    def _wait(self, future: Future[None] | None) -> None:
        if future is None:
            return
        while not future.done() and not wait_for([future], POLL_SECONDS).done:
            if self._aborted():
                raise Aborted("the call was aborted while the log was written")
        future.result()

    def _late(self) -> bool:
        segments = self._segments
        late = bool(self._kept) and self._kept[0][0] > segments.synced
        return segments.last - segments.synced > self._lag.nbytes or (
            late and time.monotonic() - self._kept[0][2] > self._lag.seconds
        )

    def keep(self) -> None:
        """Keep the committed change, or changes. Waits until the tail, if any, has the records."""
        change, self._open = self._open, None
        assert change is not None
        first = change.records[0]
        self._kept.append((change.end, change.records[-1].epoch, time.monotonic()))
        self._written, self.last = self._hand_over(change), first.kind
        # All ranks voted, so the changes before are made and synced; a rank in doubt may still refuse this one.
        if self._sync == "always" and not first.ahead:
            self.common = first.epoch - (first.kind not in WITHIN)
        if change.offset is not None:
            self.offsets[change.offset[0]] = change.offset[1]

    def refuse(self) -> None:
        """Write the refusal of the change, or of each of several, durably, if one was begun.

        Raises
        ------
        StoreError
            The refusal was not written, and nothing can be logged any more. `undecided` of the error is the last epoch
            that the store may have.
        """
        change, self._open = self._open, None
        self._put_off = self._problem = None
        if change is None:
            return
        # Write the refusals over records that could not be written, or behind them.
        records = change.records
        try:
            problem = self._await_write(change)
            if problem is not None:  # `finish` would write a tail's records from the first missing one on
                self.flush()
            refusals = [draft("refused", {}, record.epoch, record.attempt, record.ahead) for record in records]
            if self.broken is not None:
                raise OSError(None, self.broken)
            if problem is not None:
                self._segments.overwrite(change.place, records, refusals)
            else:
                for refused in refusals:
                    self._segments.append(refused)
            self._segments.sync()
            self._segments.check_appended()  # a mark of another thread may come before the refusals
        except Exception as error:  # MemoryError, too: a later attempt would not count
            reason = error if isinstance(error, OSError) else OSError(None, f"{type(error).__name__}: {error}")
            self.broken = self.broken or str(failed(reason, self._segments.path, "a refusal cannot be logged in"))
            first, last = records[0].epoch, records[-1].epoch
            what = f"epoch {first} was" if first == last else f"epochs {first} to {last} were"
            them = "it" if first == last else "them"
            problem = StoreError(
                f"{self.broken}; {what} not made; whether the store has {them} is known when it is opened again"
            )
            self.undecided = problem.undecided = last
            raise problem from error

    def _await_write(self, change: _Open) -> BaseException | None:
        """Wait for the write of a record; return its error."""
        written = self._hand_over(change)
        self._hurry()
        return written.exception()

    @property
    def vote(self) -> SnapshotState:
        """The snapshot state that this rank sends with its vote."""
        if not self._snapshot_bytes:
            return SnapshotState.IDLE
        if self.busy():
            return SnapshotState.WRITING
        due = self._segments.last - self.since > self._snapshot_bytes
        return SnapshotState.WANTED if due else SnapshotState.IDLE

    # ---- how far -----------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> int:
        """The newest epoch on the disk, together with all before it."""
        while self._kept and self._kept[0][0] <= self._segments.synced:
            self._durable = self._kept.popleft()[1]
        return self._durable

    def reached_disk(self) -> int:
        """Return `durable`, from a thread other than the shard's."""
        kept, durable = list(self._kept), self._durable  # in this order, since the shard's thread updates both
        for place, epoch, _ in kept:
            if place > self._segments.synced:
                break
            durable = max(durable, epoch)
        return durable

    @property
    def lag(self) -> int:
        """Bytes that are written and not on the disk."""
        return max(0, self._segments.last - self._segments.synced)

    @property
    def synced(self) -> int:
        """The place up to which all records are on the disk."""
        return self._segments.synced

    @property
    def place(self) -> int:
        """The place behind the last record: bytes logged in this term."""
        return self._segments.end

    def rotate(self) -> int:
        """Begin a new segment; return its place. `StoreError` if the log is broken, or the disk is full."""
        self._rotate()
        return self._segments.end

    def _rotate(self) -> None:
        self._drain()
        self._check()  # a new segment states that all before it is on the disk
        try:
            self._segments.rotate()
        except OSError as error:
            raise failed(error, self._segments.path, "no room for a log after") from error

    def flush(self) -> None:
        """Wait until the file has all kept changes, for readers beside this graph."""
        if self._written is not None:
            self._hurry()
            wait_for([self._written])
            with suppress(OSError):  # the log is broken, and says so
                self._segments.await_appended()

    def attach_tail(self, make: Callable[[], tuple[SharedMemoryTail, Copy] | None]) -> None:
        """Stage later records in the tail that `make` returns, if any. The writing thread calls `make`.

        With ``sync="background"`` only.
        """
        self._written = self._writer.submit(self._attach, make)

    def _attach(self, make: Callable[[], tuple[SharedMemoryTail, Copy] | None]) -> None:
        if (tail := make()) is not None:
            self._segments.attach(tail[0])
            self._behind = WriteBehind(self._segments, tail[1], self._writer, self._write_held)

    def _drain(self) -> None:
        self.flush()
        if self._syncing is not None:
            wait_for([self._syncing])

    def close(self) -> None:
        """Write and sync all records, and end the threads.

        A change under way stays undecided.
        """
        # Write and sync what is under way.
        if self._open is not None:
            self._await_write(self._open)
            self._written = self._open.written
        self._drain()

        # Close the files, and end the threads.
        with suppress(OSError):  # nothing was acknowledged as durable that is not
            self._segments.close()
        for executor in dict.fromkeys((self._writer, self._syncer, self._hasher)):  # the simulator needs this order
            if executor is not None:
                executor.shutdown()
