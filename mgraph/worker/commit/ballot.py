"""Two-phase commit: all ranks prepare a change and vote, then all commit it, or all discard it.

A rank that is released after its vote and before it learns the outcome keeps what it prepared; it is in doubt. The
client then learns from the other ranks whether the change was made, and calls `Ballot.resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any, Protocol

from mgraph.errors import Aborted
from mgraph.log.records import WITHIN, SnapshotState
from mgraph.worker.commit.change import Change, Record
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard

__all__ = ["Ballot", "RecordLog"]

REFUSED = 0  #: the vote of a rank that could not prepare the change; less than every `SnapshotState`
_NOTHING = nullcontext()


class RecordLog(Protocol):
    """What writes down one rank's changes that are logged; `mgraph.log.log.Log` is one. An error refuses the change."""

    def begin(self, kind: str, columns: Mapping[str, Any], epoch: int, ahead: bool = False) -> None:
        """Begin to write the record of a change that is to be `epoch`, or belongs to it.

        It need not wait until it is written. If it is `ahead`, it need not be safe before the vote, but before it is
        acknowledged: see `safe`. It may leave work to `proceed`.
        """

    def proceed(self) -> None:
        """Go on, now that the device works on the change; `ready` raises its error."""

    @property
    def safe(self) -> Future[None] | None:
        """Ends when the last change that was begun `ahead` is safe; an error leaves open whether it is."""

    def ready(self) -> None:
        """Wait until the record is as safe as a vote for the change needs."""

    def keep(self) -> None:
        """The change was committed; a device may still work on that. Returns when its record is safe."""

    def refuse(self) -> None:
        """The change was refused: write that down, and wait until it is safe."""

    @property
    def vote(self) -> SnapshotState:
        """The snapshot state that is sent with the vote."""

    def snapshot(self) -> None:
        """Take a snapshot, which a rank wanted and none is writing. It raises nothing."""


class Ballot:
    """Decides on the changes of one shard, one after another.

    Parameters
    ----------
    shard : Shard
    log : RecordLog, optional
        Is told of each change that is logged, on every rank, also where its share is empty.

    Attributes
    ----------
    in_doubt : Change or None
        A prepared change for which this rank does not know the outcome of the vote.
    keys : KeyLog or None
        The keys of the vertices, on rank 0, where it is told of all of them.
    broken : str or None
        Why a commit failed on this rank, after which the ranks hold different states.
    """

    def __init__(self, shard: Shard, log: RecordLog | None = None) -> None:
        self.shard, self.log = shard, log
        self.in_doubt: Change | None = None
        self.broken: str | None = None
        self.keys: KeyLog | None = None
        self._snapshot_due = False
        self._working = shard.working()  # of one change at a time

    def attempt(self, record: Record | None, ahead: bool = False) -> AbstractContextManager[None]:
        """Log a change, which is made ready and decided in this block; nothing without a log.

        If it is `ahead`, it is acknowledged only when `safe` has ended.

        If the block fails, the refusal is logged before the error is raised, unless this rank is in doubt.
        """
        return _NOTHING if self.log is None or record is None else _Logged(self, self.log, record, ahead, _NOTHING)

    def working(self, record: Record | None, ahead: bool = False) -> AbstractContextManager[None]:
        """As `attempt`, and as `Shard.working`."""
        if self.log is None or record is None:
            return self._working
        return _Logged(self, self.log, record, ahead, self._working)

    def decide(self, change: Change, settle: bool = True) -> None:
        """Make the change on all ranks, or on none.

        Parameters
        ----------
        change : Change
        settle : bool
            Whether to wait until the device has made the change. If not, call `settle` before anything else that can
            fail.

        Raises
        ------
        Aborted
            Another rank could not prepare it.
        Exception
            What `prepare` raised on this rank.
        """
        problem = self._prepare(change)
        try:
            agreed = self._vote(problem is None)
        except BaseException:
            self.in_doubt = change if problem is None else None  # other ranks may have learned that all agree
            raise
        if problem is not None:
            raise problem
        if not agreed:
            change.discard()
            raise Aborted(f"{self.shard}: another rank could not prepare the change; nothing was changed")
        self._commit(change)
        if settle:
            self.settle()
        if self.log is not None and self._snapshot_due:
            self.log.snapshot()

    def _prepare(self, change: Change) -> Exception | None:
        """Prepare the change; the error if that fails, to be raised after the vote has told the other ranks."""
        log = self.log if change.logged else None
        try:
            if log is not None:
                self.shard.device.meanwhile(log.proceed)
            change.prepare()
            if log is not None:
                log.ready()
        except Exception as error:
            change.discard()
            if change.exchanges:  # other ranks may still wait in a collective, from which the client releases them
                raise
            return error
        return None

    def _vote(self, ready: bool) -> bool:
        """Whether every rank is ready; the same answer on every rank."""
        state = SnapshotState.IDLE if self.log is None else self.log.vote
        says = int(state) if ready else REFUSED
        shard, began = self.shard, perf_counter()
        least = shard.exchange.least(says)
        shard.waited += perf_counter() - began
        self._snapshot_due = least == SnapshotState.WANTED
        return least != REFUSED

    def _commit(self, change: Change) -> None:
        try:
            change.commit()
            if self.log is not None and change.logged:
                self.log.keep()
            self.shard.changes += 1
            self.shard.epoch += change.content
            if self.keys is not None:
                self._follow(self.keys, change)
        except BaseException as error:
            self._break(error)
            raise

    def _follow(self, keys: KeyLog, change: Change) -> None:
        keys.note(change.brought, change.gone, self.shard.generation)
        if keys.n != self.shard.n_vertices:  # vertices without keys, or whose client has told nobody
            self.keys = None

    def settle(self) -> None:
        """Wait until the device has made the commits, so that a failure is raised here and not in a later call."""
        if self.broken is None:
            try:
                self.shard.device.synchronize()
            except BaseException as error:
                self._break(error)
                raise

    @property
    def safe(self) -> Future[None] | None:
        """Ends when all that was committed is as safe as its acknowledgement needs; None where it is.

        If that fails, this rank is `broken`: it has changes that its disk may not have.
        """
        safe = None if self.log is None else self.log.safe
        if safe is not None:
            safe.add_done_callback(self._check_safe)
        return safe

    def make_safe(self) -> None:
        """Wait for `safe`; raises its error."""
        if (safe := self.safe) is not None:
            safe.result()

    def _check_safe(self, safe: Future[None]) -> None:
        if (error := safe.exception()) is not None and self.broken is None:
            self.broken = f"rank {self.shard.rank}: what was committed is not on the disk: {error}"

    def resolve(self, changes: int) -> None:
        """Commit or discard the change in doubt; `changes` is the largest number of changes that a rank has made."""
        change, self.in_doubt = self.in_doubt, None
        if change is None:
            return
        if self.shard.changes < changes:
            self._commit(change)
            self.settle()
        else:
            change.discard()
            if self.log is not None and change.logged:
                self.log.refuse()
        self.make_safe()  # the answer tells the epoch

    def close(self) -> None:
        """Discard the change in doubt, if any."""
        change, self.in_doubt = self.in_doubt, None
        if change is not None:
            change.discard()

    def _break(self, error: BaseException) -> None:
        """Record a failure of a commit in `broken`, because it leaves the ranks with different states."""
        self.broken = f"rank {self.shard.rank}: the commit failed: {type(error).__name__}: {error}"


class _Logged:  # two generators would take 5 us longer, while the device waits for its next kernel
    """The block of `Ballot.attempt`, and in it `block`."""

    def __init__(
        self, ballot: Ballot, log: RecordLog, record: Record, ahead: bool, block: AbstractContextManager[None]
    ) -> None:
        self._ballot, self._log, self._record, self._ahead, self._block = ballot, log, record, ahead, block

    def __enter__(self) -> None:
        record = self._record
        epoch = self._ballot.shard.epoch + (record.kind not in WITHIN)
        self._log.begin(record.kind, record.columns, epoch, self._ahead)
        self._block.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._block.__exit__(kind, error, trace)
        if kind is not None and self._ballot.in_doubt is None and self._ballot.broken is None:
            self._log.refuse()
