"""Mixed streams on a worker: updates and queries go to their owners, who answer, and then vote on the updates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import COLUMNS
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import load
from mgraph.operations import updates_of
from mgraph.structures import Run
from mgraph.structures.mixed import Answers, Mixed, sort_stream
from mgraph.worker.changes.change import BatchChange, Change, Growth
from mgraph.worker.changes.route import route
from mgraph.worker.shard.shard import Shard

__all__ = ["Execution", "Stream", "answered", "logged", "streams"]


class Stream(NamedTuple):
    """The operations that one structure of a shard is to see: a run, and with one rank the kinds in stream order."""

    run: Run
    kinds: Array


def streams(shard: Shard, kind: Any, src: Any, dst: Any, weight: Any = None, first: int = 0) -> list[Stream]:
    """What each structure of this shard is to see of a stream, in local rows, from all ranks' shares of it.

    All ranks call it together. `first` is the place of this rank's share in the whole stream. O(n log n).
    """
    found, stride = [], 1 if shard.directed else 2
    kind, src, dst, weight = (shard.here(column) for column in (kind, src, dst, weight))
    n, weights = len(kind), weight
    if weight is not None and stride == 2:
        weights = shard.device.repeat(weight, 2)
    for by_dst in range(len(shard.structures)):
        keys, kinds = shard.device.empty(n * stride, np.uint64), shard.device.empty(n * stride, np.int8)
        load(shard.device, "structures/mixed.cuh").StreamArcs(
            n, kinds=kind, src=src, dst=dst, order=shard.order, n=n, stride=stride, by_dst=by_dst,
            keys=keys, kinds_out=kinds,
        )  # fmt: skip
        run = sort_stream(shard.device, keys, kinds, weights, first * stride)
        found.append(Stream(route(shard, run), kinds if shard.size == 1 else None))
    return found


class Execution(Change):
    """The updates of a stream, and the answers to its queries, which are there once it is prepared.

    Parameters
    ----------
    shard : Shard
    found : list of Stream
        For each structure of the shard; emptied.
    growth : Growth, optional
        The vertices that the updates bring.
    room : int, optional
        The bytes of answers that the client can take from all ranks together; given if rows are asked for.

    Attributes
    ----------
    answers : list of Answers
        The answers of each structure.
    nbytes : int
        Bytes of the answers of all ranks, if `room` is given.
    """

    def __init__(
        self, shard: Shard, found: list[Stream], growth: Growth | None = None, room: int | None = None
    ) -> None:
        super().__init__(shard)
        self._streams, self._growth, self._room = found, growth, room
        self._updates: BatchChange | None = None
        self.answers: list[Answers] = []
        self.nbytes = 0

    @property
    def updates(self) -> BatchChange:
        """The updates alone, once they are prepared."""
        assert self._updates is not None
        return self._updates

    def prepare(self) -> None:
        """Prepare the updates, and answer the queries; if that raises, discard them.

        `CapacityError` if the answers are too many for this rank, or those of all ranks too many for the client.
        """
        try:
            try:
                self._answer()
            finally:  # in which all ranks take part, whatever became of them
                self.nbytes = self._bytes_of_all()
            if self._room is not None and self.nbytes > self._room:
                raise CapacityError(f"the answers take {self.nbytes} bytes, and the client has room for {self._room}")
        except BaseException:
            self.discard()
            raise

    def _answer(self) -> None:
        shard, mixed = self.shard, []
        while self._streams:
            run, kinds = self._streams.pop(0)
            mixed.append(Mixed(shard.device, run, kinds))
        self._updates = BatchChange(shard, [one.updates for one in mixed], self._growth)
        self._updates.prepare()
        for structure, outcome in self._updates.outcomes:
            self.answers.append(mixed.pop(0).answer(structure, outcome))

    def _bytes_of_all(self) -> int:
        """Bytes of all ranks' answers; 0 where nobody asks."""
        if self._room is None:
            return 0
        with self.shard.waiting():
            mine = np.array([sum(answers.nbytes for answers in self.answers)], np.int64)
            return int(self.shard.exchange.allreduce(mine)[0])

    def commit(self) -> None:
        """Commit the updates."""
        self.updates.commit()

    def discard(self) -> None:
        """Discard the updates and the answers."""
        self.answers = []
        if self._updates is not None:
            self._updates.discard()
        elif self._growth is not None:
            self._growth.undo()


def answered(shard: Shard, answers: list[Answers]) -> dict[str, Any]:
    """The answers of a shard's structures as those of one call.

    `found`, `weights`, `degrees` are those to queries of edges and of degrees; for `neighbors` and `predecessors` there
    are the rows' lengths, dst and weight. `places` are those of the queries in this order; none with one rank.
    """
    out, rows = answers[0], {"neighbors": answers[0].neighbors, "predecessors": answers[-1].predecessors}
    value: dict[str, Any] = {"found": out.has_edge, "weights": out.weight, "degrees": out.degree}
    for name, csr in rows.items():
        value |= {name: np.diff(csr.offsets), f"{name}_dst": csr.dst, f"{name}_weight": csr.weight}
    places = [one.place for one in answers if one.place is not None]
    stride = np.uint32(1 if shard.directed else 2)
    value["places"] = np.concatenate(places) // stride if places else None
    return value


def logged(kind: Any, src: Any, dst: Any, weight: Any = None) -> dict[str, Any]:
    """The updates of a share, as the columns of a batch's record."""
    batch = updates_of(*(None if column is None else Device.to_host(column) for column in (kind, src, dst, weight)))
    return {name: getattr(batch, name) for name in COLUMNS}
