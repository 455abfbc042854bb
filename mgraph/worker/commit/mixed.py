"""Mixed streams on a worker: owners answer queries and vote on updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import COLUMNS, check_ids
from mgraph.device import Array, Device
from mgraph.errors import CapacityError, UnknownVertex
from mgraph.kernels import load
from mgraph.operations import updates_of
from mgraph.structures import Run
from mgraph.structures.mixed_stream import MixedStream, PendingResults, QueryResults, sort_stream
from mgraph.tables.ids import GROW
from mgraph.worker.commit.change import BatchChange, Change, Growth
from mgraph.worker.commit.route import route
from mgraph.worker.shard.shard import Shard

__all__ = ["Execution", "Stream", "answered", "logged", "streams"]


class Stream(NamedTuple):
    """Operations of a stream for a structure of a shard.

    Attributes
    ----------
    run : Run
    kinds : int8[n] or None
        The kinds in stream order, with one rank.
    counts : sequence of 8 int or None
        The number of operations of each kind, if known.
    unchecked : (uint32[n], uint32[n], uint64[2]) or None
        The src and dst of an unchecked stream, and the largest of each, which the device writes.
    """

    run: Run
    kinds: Array
    counts: Sequence[int] | None = None
    unchecked: tuple[Array, Array, Array] | None = None


def streams(
    shard: Shard,
    kind: Any,
    src: Any,
    dst: Any,
    weight: Any = None,
    first: int = 0,
    counts: Sequence[int] | None = None,
    check: bool = False,
) -> list[Stream]:
    """Route a stream to its owners, and return the operations for each structure, in local rows.

    All ranks call it together. `first` is the offset of this rank's part in the whole stream. With one rank, `counts`
    may give the numbers of the seven kinds, which saves a wait. With `check` the ids are unchecked. O(n log n).

    Raises
    ------
    UnknownVertex
        With `check`: an id past the graph's vertices. If a run needs no translation, `Execution` checks it later.
    """
    parts, stride = [], 1 if shard.directed else 2
    device, whole = shard.device, shard.size == 1
    kind, src, dst, weight = (shard.here(column) for column in (kind, src, dst, weight))

    # Ids are rows already: the sort makes the keys, and saves a launch.
    if whole and stride == 1 and shard.order is None and len(shard.structures) == 1:
        largest = device.zeros(2, np.uint64) if check else None
        run = sort_stream(device, weight=weight, src=src, dst=dst, largest=largest)
        return [Stream(run, kind, counts and [*counts, 0], (src, dst, largest) if check else None)]

    # Otherwise make keys for each structure, two arcs per undirected edge, sort and route them.
    if check:
        _check(shard, src, dst)
    n, weights = len(kind), weight
    if weight is not None and stride == 2:
        weights = device.repeat(weight, 2)
    for by_dst in range(len(shard.structures)):
        keys, kinds = device.empty(n * stride, np.uint64), device.empty(n * stride, np.int8)
        load(device, "structures/mixed_stream.cuh").StreamArcs(
            n, kinds=kind, src=src, dst=dst, order=shard.order, n=n, stride=stride, by_dst=by_dst,
            keys=keys, kinds_out=kinds,
        )  # fmt: skip
        run = sort_stream(device, keys, None if whole else kinds, weights, first * stride)
        seen = _seen(counts, stride, by_dst) if whole and counts is not None else None
        parts.append(Stream(route(shard, run), kinds if whole else None, seen))
    return parts


def _seen(counts: Sequence[int], stride: int, by_dst: int) -> list[int]:
    """Count the operations of each kind, and of none, in a structure's stream."""
    inserts, deletes, *points, predecessors = counts
    if stride == 2:
        return [2 * inserts, 2 * deletes, *points, predecessors, sum(points) + predecessors]
    if by_dst:
        return [inserts, deletes, *[0] * len(points), predecessors, sum(points)]
    return [inserts, deletes, *points, 0, predecessors]


def _check(shard: Shard, src: Array, dst: Array) -> None:
    check_ids(src, shard.n_vertices, "src", GROW)
    check_ids(dst, shard.n_vertices, "dst", GROW)


class Execution(Change):
    """Updates of a stream, and the answers to its queries, which exist once it is prepared.

    Parameters
    ----------
    shard : Shard
    parts : list of Stream
        For each structure of the shard; emptied.
    growth : Growth, optional
        The vertices that the updates add.
    room : int, optional
        The client's limit in bytes for the answers of all ranks together; given if the stream asks for rows.

    Attributes
    ----------
    nbytes : int
        Bytes of the answers of all ranks, if `room` is given.
    """

    def __init__(
        self, shard: Shard, parts: list[Stream], growth: Growth | None = None, room: int | None = None
    ) -> None:
        super().__init__(shard)
        self._streams, self._growth, self._room = parts, growth, room
        self._updates: BatchChange | None = None
        self._coming: list[PendingResults] = []
        self.nbytes = 0

    @property
    def updates(self) -> BatchChange:
        """The prepared updates."""
        assert self._updates is not None
        return self._updates

    @property
    def answers(self) -> list[QueryResults]:
        """Answers of each structure, once prepared; waits for the device."""
        return [coming.answers() for coming in self._coming]

    def prepare(self) -> None:
        """Prepare the updates and answer the queries; on an error, discard the updates.

        Raises `CapacityError` if the answers do not fit on this rank, or those of all ranks at the client, and
        `UnknownVertex` for an unchecked stream.
        """
        try:
            try:
                self._answer()
            finally:  # a collective of all ranks, also after an error
                self.nbytes = self._bytes_of_all()
            if self._room is not None and self.nbytes > self._room:
                raise CapacityError(f"the answers take {self.nbytes} bytes, and the client has room for {self._room}")
        except BaseException:
            self.discard()
            raise

    def _answer(self) -> None:
        """Split the streams into updates and queries, prepare the former and answer the latter."""
        shard, mixed, unchecked = self.shard, list[MixedStream](), None
        while self._streams:
            run, kinds, counts, unchecked = self._streams.pop(0)
            mixed.append(MixedStream(shard.device, run, kinds, counts, None if unchecked is None else unchecked[2]))
        self._updates = BatchChange(shard, [stream.updates for stream in mixed], self._growth)
        if unchecked is not None:
            self._prepare_unchecked(mixed[0], *unchecked[:2])
        else:
            self._updates.prepare()
        for structure, outcome in self._updates.outcomes:
            self._coming.append(mixed.pop(0).answer(structure, outcome))

    def _prepare_unchecked(self, mixed: MixedStream, src: Array, dst: Array) -> None:
        """Prepare unchecked updates; `UnknownVertex` for ids past the graph's vertices.

        A structure that checks a batch's ids waits for the device anyway, after which the stream's largest ids are
        available. Other structures need a wait before they get the updates.
        """
        shard, updates = self.shard, self.updates
        # The structure's check, or a wait, makes the largest ids available.
        if late := bool(len(mixed.updates)) and updates.checks_ids:
            try:
                updates.prepare()
            except UnknownVertex:
                _check(shard, src, dst)  # names it
                raise
        else:
            shard.device.synchronize()
        if max(mixed.largest_ids()) >= shard.n_vertices and len(src):
            _check(shard, src, dst)
        if not late:
            updates.prepare()

    def _bytes_of_all(self) -> int:
        """Return the bytes of all ranks' answers; 0 without `room`."""
        if self._room is None:
            return 0
        with self.shard.waiting():
            mine = np.array([sum(coming.nbytes for coming in self._coming)], np.int64)
            return int(self.shard.exchange.allreduce(mine)[0])

    def commit(self) -> None:
        """Commit the updates."""
        self.updates.commit()

    def discard(self) -> None:
        """Discard the updates and the answers."""
        if self._coming:
            self.shard.device.synchronize()  # it may be writing them
        self._coming = []
        if self._updates is not None:
            self._updates.discard()
        elif self._growth is not None:
            self._growth.undo()


def answered(shard: Shard, answers: list[QueryResults]) -> dict[str, Any]:
    """Return the answers of a shard's structures as a call's answer.

    `found`, `weights` and `degrees` answer queries of edges and of degrees; `neighbors` and `predecessors` have the
    rows' lengths, dst and weight. `places` are the queries' offsets in this order; None with one rank.
    """
    out, rows = answers[0], {"neighbors": answers[0].neighbors, "predecessors": answers[-1].predecessors}
    value: dict[str, Any] = {"found": out.has_edge, "weights": out.weight, "degrees": out.degree}
    for name, csr in rows.items():
        value |= {name: np.diff(csr.offsets), f"{name}_dst": csr.dst, f"{name}_weight": csr.weight}
    places = [answer.place for answer in answers if answer.place is not None]
    stride = np.uint32(1 if shard.directed else 2)
    value["places"] = np.concatenate(places) // stride if places else None
    return value


def logged(kind: Any, src: Any, dst: Any, weight: Any = None) -> dict[str, Any]:
    """Return the updates of a stream's part as the columns of a batch's record."""
    batch = updates_of(*(None if column is None else Device.to_host(column) for column in (kind, src, dst, weight)))
    return {name: getattr(batch, name) for name in COLUMNS}
