"""Two-phase commit: all ranks prepare a change and vote, then all commit it, or all discard it.

A rank that is aborted between its vote and the outcome keeps the prepared change; it is in doubt. The client then
learns from the other ranks whether the change was committed, and calls `Ballot.resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from mgraph.errors import Aborted
from mgraph.log.records import WITHIN, SnapshotState
from mgraph.structures.run import FEW
from mgraph.worker.commit.change import BatchChange, Change, Record
from mgraph.worker.commit.route import share_runs
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard

__all__ = ["Ballot", "RecordLog"]

IDLE, WANTED = int(SnapshotState.IDLE), int(SnapshotState.WANTED)  #: an enum's members take 0.1 us each
REFUSED = 0  #: vote of a rank that could not prepare the change; less than every `SnapshotState`
_NOTHING = nullcontext()


class RecordLog(Protocol):
    """Protocol of a rank's log, such as `mgraph.log.log.Log`. An error refuses the change."""

    def begin(
        self,
        kind: str,
        columns: Mapping[str, Any],
        epoch: int,
        ahead: bool = False,
        more: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Begin to write the record of a change of `epoch`, and those of `more` changes that are decided with it.

        It may return before they are written, and leave work to `proceed`. With `ahead`, a record need not be
        safe before the vote, only before its acknowledgement, as `safe` tells.
        """

    def proceed(self) -> None:
        """Continue while the device works on the change; `ready` raises its error."""

    @property
    def safe(self) -> Future[None] | None:
        """Future of the last `ahead` change's safety; after an error it is unknown."""

    def ready(self) -> None:
        """Wait until the record is safe enough for a vote."""

    def keep(self) -> None:
        """Record the commit, and wait until the record is safe. A device may still work on the change."""

    def refuse(self) -> None:
        """Record the refusal of the change, and wait until that is safe."""

    @property
    def vote(self) -> SnapshotState:
        """The snapshot state to send with the vote."""

    def snapshot(self) -> None:
        """Begin a snapshot that a rank wanted and none is writing. Raises nothing."""


class Ballot:
    """Two-phase commits of a shard.

    Parameters
    ----------
    shard : Shard
    log : RecordLog, optional
        Records every logged change, on every rank, also if its part is empty.

    Attributes
    ----------
    in_doubt : Change or None
        A prepared change with an unknown outcome of its vote.
    keys : KeyLog or None
        The keys of the vertices, on rank 0, if it learns all of them.
    broken : str or None
        Why a commit failed on this rank; the ranks then hold different states.
    """

    def __init__(self, shard: Shard, log: RecordLog | None = None) -> None:
        self.shard, self.log = shard, log
        self.in_doubt: Change | None = None
        self.broken: str | None = None
        self.keys: KeyLog | None = None
        self._snapshot_due = False
        self._working = shard.working()  # reused: changes come one at a time
        spec = shard.spec
        self._alone = shard.size == 1 and spec.window_edges is None  # needs no vote
        self._plain = (spec.directed, spec.reverse, spec.combine, spec.times) == (True, False, "last", None)

    def attempt(self, record: Record | None, ahead: bool = False) -> AbstractContextManager[None]:
        """Return a block that logs the change prepared and decided in it; does nothing without a log.

        With `ahead`, the change is acknowledged only after `safe`. If the block fails, the refusal is logged before the
        error is raised, unless this rank is in doubt.
        """
        return _NOTHING if self.log is None or record is None else _Logged(self, self.log, record, ahead, _NOTHING)

    def working(self, record: Record | None, ahead: bool = False) -> AbstractContextManager[None]:
        """Return a block that is both `attempt` and `Shard.working`."""
        if self.log is None or record is None:
            return self._working
        return _Logged(self, self.log, record, ahead, self._working)

    def apply_directly(
        self, src: Any, dst: Any, op: Any = None, weight: Any = None, time: Any = None, whole: bool = False
    ) -> dict[str, Any] | None:
        """Commit a batch that needs neither a record nor an exchange before the vote; return the answer.

        Such a batch is `whole` on every rank, in a graph without times; or it is small and in host memory of the only
        rank, in a graph without `window_edges`. For other batches return None, and change nothing. Raises the errors of
        `decide`.
        """
        shard = self.shard
        if self.log is not None:
            return None
        if whole:
            if shard.clock is not None:
                return None
            with self._working:
                change = BatchChange(shard, share_runs(shard, src, dst, weight, op, own=True))
                self.decide(change)
                return {**change.counted, "epoch": shard.epoch}
        if not self._alone or len(src) > FEW or type(src) is not np.ndarray or type(dst) is not np.ndarray:
            return None

        # There is no vote; end a call that was stopped.
        began, structure = perf_counter(), shard.out_edges
        if shard.exchange.aborted():
            shard.exchange.barrier()  # raises the error
        if not self._plain or shard.order is not None or shard.change_log.first is not None:
            return self._apply_change(began, src, dst, op, weight, time)

        # The structure prepares and writes the batch.
        before = structure.state
        try:
            inserted, updated, deleted, missing = structure.apply_few(src, dst, op, weight)
            shard.num_edges += inserted - deleted
            shard.operations += inserted + updated + deleted + missing
            shard.changes += 1
            shard.epoch += 1
        except BaseException as error:
            if structure.state is not before:
                self._break(error)
            raise
        shard.note_batch(perf_counter() - began)
        return {
            "inserted": inserted, "updated": updated, "deleted": deleted, "missing": missing, "late": 0, "expired": 0,
            "epoch": shard.epoch,
        }  # fmt: skip

    def _apply_change(self, began: float, src: Any, dst: Any, op: Any, weight: Any, time: Any) -> dict[str, Any]:
        """Commit a small batch of a graph with further data beside its out-edges."""
        # The number of self-loops matters in undirected graphs alone.
        shard = self.shard
        before = [structure.state for structure in shard.structures]
        loops = 0 if shard.directed else int(np.count_nonzero(src == dst))
        runs, expiry = share_runs(shard, src, dst, weight, op, time), None
        if shard.clock is not None:
            runs, expiry = shard.admit(runs)
        change = BatchChange(shard, runs, None, expiry)
        try:
            change.apply(loops)
            shard.changes += 1
            shard.epoch += 1
        except BaseException as error:
            if any(structure.state is not was for structure, was in zip(shard.structures, before, strict=True)):
                self._break(error)
            raise
        shard.note_batch(perf_counter() - began)
        done: dict[str, Any] = change.counted
        done["epoch"] = shard.epoch
        return done

    def decide(self, change: Change, settle: bool = True) -> None:
        """Commit the change on all ranks, or on none.

        Parameters
        ----------
        change : Change
        settle : bool
            Wait until the device has made the change. If False, call `settle` before anything else that can fail.

        Raises
        ------
        Aborted
            Another rank could not prepare the change.
        Exception
            The error of `prepare` on this rank.
        """
        # Phase 1: prepare. An error is raised after the vote.
        log, problem = self.log if change.logged else None, None
        try:
            if log is not None:
                self.shard.device.meanwhile(log.proceed)
            change.prepare()
            if log is not None:
                log.ready()
        except Exception as error:
            change.discard()
            # Other ranks may wait in a collective, from which the client releases them: they cannot vote.
            if change.exchanges:
                raise
            problem = error

        # Vote, even after an error. An interrupted vote leaves the change in doubt.
        try:
            agreed = self._vote(problem is None)
        except BaseException:
            self.in_doubt = change if problem is None else None  # other ranks may have learned that all agree
            raise

        # Phase 2: discard on a refusal, else commit.
        if problem is not None:
            raise problem
        if not agreed:
            change.discard()
            raise Aborted(f"{self.shard}: another rank could not prepare the change; nothing was changed")
        self._commit(change, settle)
        if self.log is not None and self._snapshot_due:
            self.log.snapshot()

    def _vote(self, ready: bool) -> bool:
        """Return True if every rank is ready; all ranks get the same answer."""
        says = REFUSED if not ready else IDLE if self.log is None else int(self.log.vote)
        shard, began = self.shard, perf_counter()
        # The minimum over the ranks: a single refusal refuses.
        least = shard.exchange.least(says)
        shard.waited += perf_counter() - began
        self._snapshot_due = least == WANTED
        return least != REFUSED

    def _commit(self, change: Change, settle: bool = True) -> None:
        """Commit on this rank, and wait for its device if it is to `settle`. An error leaves the rank broken."""
        try:
            change.commit()
            if self.log is not None and change.logged:
                self.log.keep()
            self.shard.changes += max(1, change.epochs)
            self.shard.epoch += change.epochs
            if self.keys is not None:
                self._follow(self.keys, change)
            if settle:
                self.shard.device.synchronize()
        except BaseException as error:
            self._break(error)
            raise

    def _follow(self, keys: KeyLog, change: Change) -> None:
        """Add a change's keys and removals to the key log; drop the log if it misses keys."""
        keys.note(change.brought, change.gone, self.shard.generation)
        if keys.n != self.shard.n_vertices:  # vertices without keys, or with keys that the client did not send
            self.keys = None

    def settle(self) -> None:
        """Wait for the device's commits, so that their failures are raised here."""
        if self.broken is None:
            try:
                self.shard.device.synchronize()
            except BaseException as error:
                self._break(error)
                raise

    @property
    def safe(self) -> Future[None] | None:
        """Future of the safety that acknowledgements of committed changes need; None if they are safe.

        If it fails, this rank is `broken`: its disk may lack some of its changes.
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
        """Commit or discard the change in doubt; `changes` is the largest number of any rank."""
        change, self.in_doubt = self.in_doubt, None
        if change is None:
            return
        if self.shard.changes < changes:
            self._commit(change)
        else:
            change.discard()
            if self.log is not None and change.logged:
                self.log.refuse()
        self.make_safe()  # the answer reports the epoch

    def close(self) -> None:
        """Discard the change in doubt, if any."""
        change, self.in_doubt = self.in_doubt, None
        if change is not None:
            change.discard()

    def _break(self, error: BaseException) -> None:
        """Record the failure of a commit, after which the ranks' states differ."""
        self.broken = f"rank {self.shard.rank}: the commit failed: {type(error).__name__}: {error}"


class _Logged:  # two generators would take 5 us longer, while the device waits for its next kernel
    """Block of `Ballot.attempt`, around the inner `block`."""

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
