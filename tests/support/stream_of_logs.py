"""Random streams of changes that several logs write, as ballots would: what was told, and what must be there.

The driver makes the ranks' calls of real logs and stores in a random order, on files that crash. It knows what the
caller was told, and so what a store must hold after a crash at any time.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
from crashing import Crash, CrashingFiles, Later

from mgraph.errors import StoreError
from mgraph.log.head import HeadWriter
from mgraph.log.log import Lag, Log
from mgraph.log.manifest import Head
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import columns_of, log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import APART, Segments
from mgraph.log.snapshot import Rows, drop_old, folder_of, make_valid, rows_of, write_part
from mgraph.log.store import Store

PATH = "/data/store"
N = 1 << 20  #: vertices at the beginning; one leaves with some changes
SEGMENT = 3000
least = min  #: of what the ranks say is durable


class Told:
    """What the caller knows.

    Attributes
    ----------
    made : list of int
        The changes that the ranks made, by their numbers. Even ones are an epoch each. An odd one belongs to the epoch
        of the number before it: a vertex leaves.
    safe : int
        How many of them must be there.
    doubtful : list of int
        The changes that are on their way, and may become the next ones.
    refused : set of int
        The changes of which an error was given.
    open : bool
        Whether there is a store that was acknowledged.
    """

    def __init__(self) -> None:
        self.made: list[int] = []
        self.safe, self.open = 0, False
        self.doubtful: list[int] = []
        self.refused: set[int] = set()

    def check(self, there: list[int] | None) -> None:
        """Assert that what a store holds is what it has to hold; None for no store."""
        if there is None:
            assert not self.open, "the store is lost"
            return
        expected = [*self.made, *self.doubtful]
        assert there == expected[: len(there)], f"{there} is no beginning of {expected}"
        assert len(there) >= self.safe, f"{self.made[len(there) : self.safe]} were acknowledged and are lost"
        assert not self.refused & set(there), f"refused and back: {self.refused & set(there)}"


def content(files: CrashingFiles, repair: bool = False) -> list[int] | None:
    """The changes in a store, by their numbers, checked byte by byte; None if there is no store."""
    store = Store(PATH, files)
    if not store.exists:
        return None
    found = scan_store(store, repair=repair)
    there: list[int] = []
    if found.snapshot is not None:
        rows = Rows(store, found.snapshot["files"], dict.fromkeys(["src", "dst"], np.uint32))
        rows.check_ends()
        there = np.unique(rows.read(0, rows_of(found.snapshot))["src"]).tolist()
        assert epoch_of(there) == found.snapshot["epoch"]
    for shares in found.shares:
        numbers_of = set()
        for rank, entry in enumerate(shares):
            with RecordColumns(files) as bodies:
                if entry.kind == "drop_vertices":
                    numbers_of |= set(columns_of(entry, bodies.read(entry))["ids"].tolist())
                    continue
                columns = {name: np.empty(entry.n, np.uint32) for name in ("src", "dst")}
                bodies.fill(entry, 0, entry.n, columns)
            numbers_of |= set(columns["src"].tolist())
            assert entry.n >= 1
            assert (columns["dst"] == np.arange(entry.n) + 1000 * rank).all(), "a share of another rank"
        assert len(numbers_of) == 1, "shares of several changes in one epoch"
        there.extend(numbers_of)
    assert epoch_of(there) == found.epoch
    assert found.left == left_after(there)
    return there


def epoch_of(made: list[int]) -> int:
    return sum(number % 2 == 0 for number in made)


def left_after(made: list[int]) -> int:
    """The number of vertices."""
    return N - sum(number % 2 for number in made)


def columns(number: int, rank: int, n: int) -> dict[str, Any]:
    """A rank's part of a change."""
    return {"src": np.full(n, number, np.uint32), "dst": np.arange(n, dtype=np.uint32) + np.uint32(1000 * rank)}


@contextmanager
def no_room(log: Log) -> Iterator[None]:
    """A block in which a log has no room for another record, and says so."""

    def full(*sizes: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    log._segments.claim = full  # type: ignore[method-assign]
    try:
        with suppress(StoreError):
            yield
    finally:
        del log._segments.claim


class Graph:
    """The ranks' logs, from one opening to the next crash."""

    def __init__(self, files: CrashingFiles, told: Told, rng: random.Random, numbers: Any, snapshots: bool) -> None:
        self.files, self.told, self.rng, self.numbers, self.snapshots = files, told, rng, numbers, snapshots
        self.store, self.size = Store(PATH, files), rng.randint(1, 4)
        self.sync, self.ahead = rng.choice([("always", False), ("always", True), ("background", False)])
        self.exchange = 0
        found = None
        if self.store.exists:
            found = scan_store(self.store)
        else:
            self.store.make_folder()
            self.store.create({"n_vertices": N, "drop_isolated": True})
        self.term = self.store.begin_term(found, self.size, self.sync)
        self.epoch = self.term.epoch
        self.logs: list[Log] = []
        self.syncers: list[Later] = []
        self.heads: list[HeadWriter] = []
        for rank in range(self.size):
            number = log_id(self.store.about()["id"], self.term.number, rank)
            segments = Segments(files, self.store.log_folder(self.term.number, rank), number, SEGMENT)
            segments.apart = rng.choice([0, APART])
            made = [Later(), Later(lazy=True), Later()]
            self.logs.append(
                Log(
                    segments, self.sync, self.epoch, lag=Lag(1 << 30, 1e9), executor=lambda name, made=made: made.pop(0)
                )
            )
            self.syncers.append(self.logs[-1]._syncer)
            head = Head(self.store.about()["id"], self.term, rank, 0, self.epoch)
            self.heads.append(HeadWriter(self.store, head, self.logs[-1]))
            self.heads[-1].write()
        there = content(files)
        assert there is not None
        assert epoch_of(there) == self.epoch
        told.made, told.doubtful, told.open, told.safe = there, [], True, len(there)  # the caller sees the epoch

    def change(self) -> None:
        """One change, or several together, and perhaps a vertex leaves with the last."""
        numbers = [next(self.numbers) for _ in range(self.rng.choice([1, 1, 1, 2, 5]))]
        made = self.attempt(numbers)
        if not made and len(numbers) > 1:  # each is tried alone
            made = all(self.attempt([number]) for number in numbers)
        if made and self.rng.random() < 0.4:
            for syncer in self.syncers:  # it is begun when the change before it was acknowledged
                syncer.run()
            self.told.safe = len(self.told.made)
            self.attempt([self.told.made[-1] + 1])

    def attempt(self, numbers: list[int]) -> bool:
        """Changes that are decided together: made, or refused because some ranks never begin or vote against them.

        The ranks keep their exchange if several were refused. A rank that did not begin these had no room for them.
        """
        rng, told, together = self.rng, self.told, len(numbers) > 1
        leaves = numbers[0] % 2 == 1
        epoch = self.epoch + (not leaves)
        absent = {rank for rank in range(self.size) if rng.random() < 0.06}
        against = {rank for rank in range(self.size) if rng.random() < 0.06}
        begun = []
        told.doubtful = numbers
        for rank in rng.sample(range(self.size), self.size):
            if rank in absent and not together:
                continue
            log = self.logs[rank]
            if log._segments.full or rng.random() < 0.3:
                self.syncers[rank].run()
            log.attempt = self.exchange
            if leaves:
                log.begin("drop_vertices", {"ids": np.array(numbers, np.uint32)}, epoch)
            else:
                first, *more = (columns(number, rank, rng.choice([1, 3, 40, 300])) for number in numbers)
                with no_room(log) if rank in absent else nullcontext():
                    log.begin("batch", first, epoch, self.ahead, more)
            if rank in absent:
                continue
            begun.append(rank)
            if rng.random() < 0.1:
                self.heads[rank].write()
            if rng.random() < 0.5 and rank not in against:
                log.ready()
        made = not absent and not against
        if made:
            for rank in begun:
                self.logs[rank].ready()
        for rank in rng.sample(begun, len(begun)):
            self.logs[rank].keep() if made else self.logs[rank].refuse()
        told.doubtful = []
        if not made:
            if not together:
                self.exchange += 1
                told.refused.update(numbers)
            return False
        self.epoch = epoch + len(numbers) - 1
        told.made = [*told.made, *numbers]
        if self.sync == "always" and (leaves or not self.ahead):
            told.safe = len(told.made)
        else:
            self.report()
        return True

    def report(self) -> None:
        """In the background, or ahead: some syncs end, and the caller asks how far, or gets the answers."""
        for syncer in self.syncers:
            if self.rng.random() < 0.4:
                syncer.run()
        if self.rng.random() < 0.5:
            durable, made = least(log.durable for log in self.logs), self.told.made
            self.told.safe = max(self.told.safe, next(n for n in range(len(made) + 1) if epoch_of(made[:n]) == durable))

    def snapshot(self) -> None:
        """A snapshot by all ranks, each of which writes some of the numbers."""
        for syncer in self.syncers:
            syncer.run()
        folder = folder_of(self.epoch, self.term.number, len(self.told.made))
        places = [log.rotate() for log in self.logs]
        for rank in self.rng.sample(range(self.size), self.size):
            mine = np.array(self.told.made[rank :: self.size], np.uint32)
            write_part(self.store, folder, rank, {"src": mine, "dst": mine}, places[rank])
        about = {"epoch": self.epoch, "term": self.term.number, "n_vertices": left_after(self.told.made)}
        make_valid(self.store, folder, self.size, about)
        drop_old(self.store, self.rng.choice([0, 1, 2]))

    def run(self, changes: int) -> None:
        """Changes, and now and then a snapshot."""
        for _ in range(changes):
            self.change()
            if self.snapshots and self.rng.random() < 0.12:
                self.snapshot()

    def close(self) -> None:
        """End in order."""
        for syncer in self.syncers:
            syncer.run()
        for log, head in zip(self.logs, self.heads, strict=True):
            log.close()
            head.close()
        self.told.safe = len(self.told.made)


def stream(seed: int, openings: int, changes: int, every: float, snapshots: bool) -> tuple[int, int]:
    """A random stream with crashes. Before each operation on a file, with the probability `every`, what a disk may have
    is opened and compared with what was told. Returns how many such states there were, and how many changes refused."""
    rng, told, points = random.Random(seed), Told(), 0
    numbers = iter(range(2, 1 << 30, 2))
    files = CrashingFiles()
    files.folder("/data")
    left = 0

    def tick(what: str, path: str) -> None:
        nonlocal points, left
        if rng.random() < every:
            points += 1
            try:
                told.check(content(files.crashed(rng)))
            except BaseException as error:
                error.add_note(f"seed {seed}, state {points}, before {what} of {path}")
                raise
        left -= 1
        if left == 0:
            raise Crash

    graph: Graph | None = None
    for _ in range(openings):
        left = rng.choice([rng.randint(1, 40), rng.randint(40, 60 * changes), 1 << 30])
        files.tick = tick
        try:
            graph = Graph(files, told, rng, numbers, snapshots)
            graph.run(rng.randint(0, changes))
            if rng.random() < 0.5:
                graph.close()
        except Crash:
            pass
        if rng.random() < 0.5:  # the machine stops; else the process is killed, and what it wrote is there
            files = files.crashed(rng)
        files.tick = lambda what, path: None
        told.check(content(files))
    return points, len(told.refused)


def stored(seed: int, changes: int, closed: bool, snapshots: bool) -> tuple[CrashingFiles, Told]:
    """A store as a graph leaves it that is closed, or killed."""
    rng, told, files = random.Random(seed), Told(), CrashingFiles()
    files.folder("/data")
    graph = Graph(files, told, rng, iter(range(2, 1 << 30, 2)), snapshots)
    graph.run(changes)
    for syncer in graph.syncers:
        syncer.run()
    told.safe = len(told.made)
    if closed:
        graph.close()
    return files, told


Check = Callable[[list[int] | None], None]
