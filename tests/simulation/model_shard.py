"""The shard of a simulated rank: edges in a set, in place of kernels. All around it is the product's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
from fibers import world

from mgraph.batch import TOLD
from mgraph.errors import CapacityError, InvalidBatch
from mgraph.log.manifest import StoredGraph
from mgraph.log.record_columns import RecordColumns
from mgraph.log.store import Store
from mgraph.worker.calls import changes
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import Change
from mgraph.worker.shard.results import Remembered

__all__ = [
    "BatchOfModel", "GroupOfModel", "ModelShard", "contents", "create", "restore", "route", "share_runs", "update",
]  # fmt: skip

N = 1 << 16  #: vertices

Run = tuple[int, list[int]]  #: the number of a change, and edges of it


class _Device:
    kind = "cpu"

    def meanwhile(self, act: Any) -> None:
        """Do at once what a GPU's kernels would cover."""
        act()

    def synchronize(self) -> None:
        """Wait for nothing."""

    def release_unused(self) -> None:
        """Release nothing."""


class ModelShard:
    """Rows of a rank: an edge ``(number, dst)`` belongs to rank ``dst % size``, and each change has one `number`.

    Attributes
    ----------
    history : list of (int, int)
        The epoch and the number of each change.
    edges : set of (int, int)
    refuse, fail : tuple of int
        The ranks that refuse the batch of the call, and those that raise an error before it.
    """

    clock = prefetch = order = names = None
    change_log = SimpleNamespace(first=None)
    generation = nbytes = operations = batches = 0
    seconds = waited = batch_seconds = 0.0
    stuck_words, refuse, fail = (0,), (), ()
    n_vertices = N

    def __init__(self, graph: str, rank: int, size: int) -> None:
        self.spec = SimpleNamespace(
            graph=graph, copy_of="", directed=False, reverse=False, combine="last", times=None, window_edges=None
        )
        self.rank, self.size, self.exchange = rank, size, None
        self.lo, self.hi, self.epoch, self.changes = rank * N // size, (rank + 1) * N // size, 0, 0
        self.device, self.structures, self.results, self.maintained = _Device(), (), dict[str, Any](), dict[str, Any]()
        self.remembered = Remembered()
        self.history: list[tuple[int, int]] = []
        self.edges: set[tuple[int, int]] = set()

    def __str__(self) -> str:
        return f"graph {self.spec.graph}, rank {self.rank}"

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return len(self.edges)

    def restart_counters(self) -> None:
        """Count nothing."""

    def working(self, batches: int = 1) -> AbstractContextManager[None]:
        """Return a block that measures nothing."""
        return nullcontext()


class BatchOfModel(Change):
    """Insertion of edges, in place of `BatchChange`."""

    def __init__(self, shard: Any, runs: Sequence[Any], growth: Any = None, expiry: Any = None) -> None:
        super().__init__(shard)
        (self._number, self._edges, self._refuse) = runs[0]

    @property
    def counted(self) -> dict[str, int]:
        """The counts of a batch's report."""
        return dict.fromkeys(TOLD, 0) | {"inserted": len(self._edges)}

    def prepare(self) -> None:
        """Refuse the change on the ranks that the batch names."""
        world().give_way()
        if self.shard.rank in self._refuse:
            raise CapacityError(f"{self.shard}: no room for change {self._number}")

    def commit(self) -> None:
        """Add the edges."""
        shard: Any = self.shard
        shard.history.append((shard.epoch + 1, self._number))
        shard.edges.update((self._number, dst) for dst in self._edges)

    def discard(self) -> None:
        """Free nothing."""


class GroupOfModel(Change):
    """Batches of one call, in place of `GroupChange`."""

    def __init__(self, shard: Any, batches: int, sort: Callable[[], list[Any]]) -> None:
        super().__init__(shard)
        self.epochs, self._sort = batches, sort
        self._batches: list[Any] = []

    @property
    def by_batch(self) -> np.ndarray:
        """The counts of each batch."""
        return np.array([[len(edges), 0, 0, 0] for _, edges, _ in self._batches], np.int64)

    def prepare(self) -> None:
        """Sort the batches; refuse them now and then."""
        world().give_way()
        (self._batches,) = self._sort()
        if world().rng.random() < 0.3:
            raise CapacityError(f"{self.shard}: no room for {self.epochs} changes")

    def commit(self) -> None:
        """Add the edges of each batch."""
        shard: Any = self.shard
        for epoch, (number, edges, _) in enumerate(self._batches, shard.epoch + 1):
            shard.history.append((epoch, number))
            shard.edges.update((number, dst) for dst in edges)

    def discard(self) -> None:
        """Free nothing."""


def share_runs(shard: Any, src: Any, dst: Any, batch: Any = None, own: bool = False, **columns: Any) -> list[Any]:
    """Return a rank's part of a batch, or of each batch, and the ranks that refuse it; of a whole batch its `own`."""
    world().give_way()
    if batch is None and shard.rank in shard.fail:
        raise InvalidBatch(f"{shard}: a bad part of change {src[0]}")
    mine = dst % shard.size == shard.rank if own else np.ones(len(dst), bool)
    if batch is not None:
        numbers = dict.fromkeys(zip(batch.tolist(), src.tolist(), strict=True))
        return [[(number, dst[mine & (batch == at)].tolist(), ()) for at, number in numbers]]
    return [(int(src[0]), dst[mine].tolist(), shard.refuse)]


def route(shard: Any, run: Any) -> Any:
    """Send the edges of a part to their owners."""
    number, edges, refuse = run
    size = shard.size
    parts = shard.exchange.alltoallv([(number, [dst for dst in edges if dst % size == rank]) for rank in range(size)])
    assert {other for other, _ in parts} == {number}, f"ranks are in different changes: {parts}"
    return number, [dst for _, part in parts for dst in part], refuse


# ---- calls -----------------------------------------------------------------------------------------------------------


def create(rank: Rank) -> None:
    """Make an empty shard."""
    rank.end_trial()
    rank.device = _Device()  # type: ignore[assignment]
    shard: Any = ModelShard(rank.graph, rank.number, rank.size)
    rank.take(Ballot(shard))


def update(rank: Rank, refuse: Sequence[int] = (), fail: Sequence[int] = (), **share: Any) -> Value:
    """Apply a batch. Ranks of `refuse` vote against it; those of `fail` raise an error while the others wait."""
    shard: Any = rank.shard
    shard.refuse, shard.fail = refuse, fail
    return changes.update(rank, **share)


def contents(rank: Rank) -> Value:
    """Return the epoch, the history and the edges of a rank."""
    shard: Any = rank.shard
    return {"contents": pickle.dumps((shard.epoch, shard.history, shard.edges))}


def restore(
    shard: Any, ballot: Ballot, store: Store, stored: StoredGraph, after: int | None = None, known: int = 0
) -> np.ndarray:
    """Apply a stored graph, in place of `mgraph.worker.stores.restore.restore`."""
    counts, epoch = [], 0
    with RecordColumns(store.files) as bodies:
        for entries in stored.shares:
            edges: list[tuple[int, int]] = []
            for entry in entries:
                columns = {name: np.empty(entry.n, np.uint32) for name in ("src", "dst")}
                bodies.fill(entry, 0, entry.n, columns)
                edges += zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True)
            numbers = {number for number, _ in edges}
            assert len(numbers) == 1, f"parts of several changes in epoch {epoch + 1}: {numbers}"
            epoch += 1
            mine = [edge for edge in edges if edge[1] % shard.size == shard.rank]
            shard.history.append((epoch, *numbers))
            shard.edges.update(mine)
            if after is not None and epoch > after:
                counts.append([len(mine), *[0] * (len(TOLD) - 1)])
    shard.epoch = stored.epoch
    return np.array(counts, np.int64).reshape(-1)
