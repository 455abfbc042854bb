"""A rank's part of a snapshot: copied on its device while the graph waits, and written while it goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from mgraph.budget import Reservation
from mgraph.device import STAGED, Array, Device
from mgraph.errors import CapacityError, MgraphError
from mgraph.keys import KeyArray
from mgraph.log.communities import FILE, write_communities
from mgraph.log.snapshot import (
    Rows,
    check_arrow,
    drop_old,
    folder_of,
    give_up,
    make_valid,
    rows_of,
    write_keys,
    write_part,
    written,
)
from mgraph.log.store import Store
from mgraph.structures import Run
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.all_or_none import all_or_none

__all__ = ["Snapshots", "edges_of", "parts_of"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.02  #: time between two checks whether all ranks have written their parts
ROWS = 1 << 16  #: rows per step in which arcs get their sources
RETRY_SECONDS = 1.0  #: time between two attempts to tell rank 0 that a part will not be written
WAIT_SECONDS = 600.0  #: longest wait of rank 0 for the other parts, after its own is written

DTYPES = {"src": np.uint32, "dst": np.uint32, "weight": np.float32, "time": np.int64}

Columns = dict[str, np.ndarray]


def edges_of(shard: Shard) -> Callable[[], Columns]:
    """Copy the edges that this rank counts. O(m), on the device.

    In a graph with times with their times; where a window combines weights each insertion inside the window, in stream
    order. `CapacityError` if the host has no memory for them.

    Returns
    -------
    callable
        Makes the columns in host memory, by users' ids, O(n_rows + m). Any thread may call it, once, while the graph
        goes on.
    """
    device, arcs = shard.device, shard.out_edges.num_edges
    times = None if shard.clock is None else shard.clock.times[0]
    n = arcs if times is None else max(arcs, sum(map(len, times.levels)))
    taken = device.budget.reserve(44 * n + 8 * shard.n_vertices, f"a copy of {n} arcs for a snapshot")
    try:
        copied = _rows(shard) if times is None or not times.repeats else _insertions(shard, times.current())
        order = None if shard.order is None else _copied(device, shard.order)
        device.synchronize()  # the thread that makes the columns has another stream
    except BaseException:
        taken.release()
        raise
    return partial(_columns, device, taken, copied, order, shard.lo, shard.directed)


def _columns(
    device: Device, taken: Reservation, copied: dict[str, Array], order: Array, lo: int, directed: bool
) -> Columns:
    """Return the columns of the copied arrays, which leave the device."""
    with taken:
        # Copy to the host, by a stream of its own.
        device.use()
        with nullcontext() if device.kind == "cpu" else device.xp.cuda.Stream(non_blocking=True):
            columns = {name: _fetched(copied.pop(name)) for name in list(copied)}
            order = None if order is None else _fetched(order)

        # Name each arc by users' ids; of an undirected edge keep the arc with src <= dst.
        if "offsets" in columns:
            columns = {"src": _sources(lo, columns.pop("offsets")), **columns}
        if order is not None:
            names = np.empty(len(order), np.uint32)
            names[order] = np.arange(len(order), dtype=np.uint32)
            columns["src"], columns["dst"] = names[columns["src"]], names[columns["dst"]]
        if not directed:
            once = columns["src"] <= columns["dst"]
            columns = {name: column[once] for name, column in columns.items()}
    return columns


def _fetched(column: Array) -> np.ndarray:
    """Copy a column to host memory.

    It comes from a GPU in pieces, between which the graph's calls use the device.
    """
    if isinstance(column, np.ndarray):
        return column
    host, step = np.empty(len(column), column.dtype), STAGED // column.dtype.itemsize
    for at in range(0, len(column), step):
        host[at : at + step] = Device.staged(column[at : at + step])
    return host


def _sources(lo: int, offsets: np.ndarray) -> np.ndarray:
    """Return the source of each arc of the rows from `lo` on.

    By running sums, since ``numpy.repeat`` holds the GIL, as does a ``cumsum`` in its place: a call of the graph takes
    the GIL dozens of times, and would wait for each.
    """
    # A step of the running sum at the first arc of each row that is not empty.
    src = np.empty(offsets[-1], np.uint32)
    for row in range(0, len(offsets) - 1, ROWS):
        ends = offsets[row : row + ROWS + 1]
        rows = np.flatnonzero(ends[1:] > ends[:-1])
        steps = np.zeros(ends[-1] - ends[0], np.uint32)
        steps[ends[rows] - ends[0]] = np.diff(rows, prepend=-lo - row)
        np.cumsum(steps, out=src[ends[0] : ends[-1]], dtype=np.uint32)
    return src


def _rows(shard: Shard) -> dict[str, Array]:
    """Copy the arcs of a rank, with offsets of rows for sources."""
    csr = shard.out_edges.to_csr()
    columns = {"offsets": csr.offsets, "dst": csr.dst}
    if csr.weight is not None:
        columns["weight"] = csr.weight
    if shard.clock is not None:
        columns["time"] = shard.times_of(csr, None, "out")
    return {name: _copied(shard.device, column) for name, column in columns.items()}


def _insertions(shard: Shard, run: Run) -> dict[str, Array]:
    """Copy the arcs of insertions that count.

    An undirected self-loop counts once.
    """
    keys = Device.to_host(run.keys) + np.uint64(shard.lo << 32)
    more = {"weight": Device.to_host(run.weight), "time": Device.to_host(run.time)}
    columns = {"src": (keys >> np.uint64(32)).astype(np.uint32), "dst": keys.astype(np.uint32), **more}
    # Of the two equal arcs of a self-loop, drop the second.
    if not shard.directed:
        second = (columns["src"] == columns["dst"]) & ((np.arange(len(keys)) - np.searchsorted(keys, keys)) % 2 == 1)
        columns = {name: column[~second] for name, column in columns.items()}
    return {name: column if column.base is None else column.copy() for name, column in columns.items()}


def _copied(device: Device, column: Array) -> Array:
    """Copy an array, since a structure may hand out its own.

    The copy is on the device if most of its memory stays free.

    On a GPU with less memory it is in host memory.
    """
    if device.kind == "cuda" and 4 * column.nbytes > device.memory_free:
        return Device.to_host(column)
    return column.copy()


def parts_of(shard: Shard, store: Store, snapshot: Mapping[str, Any], step: int) -> list[Callable[[], Columns]]:
    """Return readers of this rank's part of a snapshot, equally many on every rank.

    A file on a local disk is read by the rank that holds it.
    """
    # Choose the files that this rank reads, and check that they are whole.
    store, rank, size = store.archive, shard.rank, shard.size
    kept = {"weight": shard.spec.weighted, "time": shard.clock is not None}
    dtypes = {name: dtype for name, dtype in DTYPES.items() if kept.get(name, True)}
    files = snapshot["files"]
    readers = [about.get("holder") for about in files]
    shared = readers.count(None) == len(readers)
    mine = files[rank::size] if shared else [about for about in files if about["holder"] == rank]
    with all_or_none(shard):
        Rows(store, mine, dtypes).check_ends()

    # Divide the rows: of shared files evenly, of local ones by their holder.
    if shared:
        mine, spans = files, list(_spans(rows_of(snapshot), rank, size, step))
    else:
        rows = [rows_of({"files": [about for about in files if about["holder"] == reader]}) for reader in range(size)]
        spans = [(min(at, rows[rank]), min(at + step, rows[rank])) for at in range(0, max(rows), step)]
    read = Rows(store, mine, dtypes).read
    return [partial(read, first, end) for first, end in spans]


def _spans(total: int, rank: int, size: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of a rank in each piece of up to `step` rows per rank."""
    for at in range(0, total, step * size):
        n = min(step * size, total - at)
        yield at + n * rank // size, at + n * (rank + 1) // size


class Snapshots:
    """Writes the snapshots of a rank in a thread, singly.

    Parameters
    ----------
    rank, size : int

    Attributes
    ----------
    problem : str or None
        Why the last one was not written.
    lacked : bool
        True if that was for want of memory.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._failed: str | None = None  # why another rank writes no part, or this one, as the client said
        self.problem: str | None = None
        self.lacked = False

    @property
    def busy(self) -> bool:
        """True while a snapshot is written."""
        return self._thread is not None and self._thread.is_alive()

    def check_idle(self, shard: Shard) -> None:
        """Raise `MgraphError` while a snapshot is written."""
        if self.busy:
            raise MgraphError(f"{shard}: a snapshot is being written; wait for it")

    def begin(
        self,
        shard: Shard,
        store: Store,
        place: int,
        term: int,
        retain: int,
        about: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        names: KeyArray | None = None,
        local: bool = False,
        communities: Mapping[str, Any] | None = None,
    ) -> None:
        """Copy this rank's edges, and write them in the background; the caller has found all ranks idle.

        Parameters
        ----------
        place, term : int
            The place and the term at which the log continues after them.
        retain : int
            The number of snapshots to keep; 0 keeps all.
        about : dict, optional
            The description of a store that has nothing but this snapshot.
        more : dict, optional
            `offsets`, the last place in each source, and `last`, the kind of the last change.
        names : KeyArray, optional
            The key of each vertex, on rank 0.
        local : bool
            Each rank describes its part where it is, and none waits for the others or drops what is old.
        communities : dict, optional
            Their names, on rank 0.
        """
        folder, name = folder_of(shard.epoch, term, shard.changes), f"mgraph-{shard.spec.graph}-{self._rank}-snapshot"
        self._failed = None
        try:
            check_arrow()
            columns = edges_of(shard)
        except Exception as error:
            if self._rank and not local:
                self._note(error)
                gives_up = partial(self._give_up, store, folder, str(error))
                self._thread = threading.Thread(target=gives_up, name=name, daemon=True)
                self._thread.start()
            raise
        self.problem, self.lacked = None, False
        content = {"epoch": shard.epoch, "term": term, "n_vertices": shard.n_vertices, **(more or {})}
        if shard.clock is not None:
            content["latest"] = shard.clock.latest
        keys = None if names is None else partial(write_keys, names=names.first(shard.n_vertices), n=shard.n_vertices)
        named = communities if communities is not None and communities["results"] else None
        args = (store, folder, columns, place, content, retain, about, keys, local, named)
        self._thread = threading.Thread(target=self._write, args=args, name=name, daemon=True)
        self._thread.start()

    def _write(
        self,
        store: Store,
        folder: str,
        columns: Callable[[], Columns],
        place: int,
        content: dict[str, Any],
        retain: int,
        about: Any,
        keys: Callable[[Store, str], dict[str, Any]] | None,
        local: bool,
        communities: Mapping[str, Any] | None,
    ) -> None:
        try:
            # Write this rank's part.
            mark: dict[str, Any] | None = None
            if local:
                named = None if keys is None else keys(store, folder)
                mark = {"folder": folder, "rank": self._rank, "size": self._size, "content": content, "keys": named}
                mark["communities"] = _write_communities(store, folder, communities)
            write_part(store.archive, folder, self._rank, columns(), place, self._closing.is_set, mark)

            # Rank 0 describes the snapshot when all parts are there.
            if self._rank == 0 and not local:
                content["keys"] = None if keys is None else keys(store.archive, folder)
                self._finish(store, folder, content, about, communities)
                drop_old(store, retain)
        except Exception as error:  # told by `problem`
            self._note(error)
            logger.warning("the snapshot of epoch %d was not written: %s", content["epoch"], self.problem)
            if self._rank and not local:
                self._give_up(store, folder, str(error))

    def _note(self, error: Exception) -> None:
        """Keep the `problem` of the snapshot."""
        self.lacked, self.problem = isinstance(error, MemoryError | CapacityError), str(error)

    def fail(self, problem: str) -> None:
        """End the wait for a part that another rank does not write, and the attempts to tell of such a part."""
        self._failed = problem

    def _give_up(self, store: Store, folder: str, problem: str) -> None:
        """Tell rank 0, which waits, that this rank's part will not be written; again until that succeeds."""
        end = time.monotonic() + WAIT_SECONDS
        while not give_up(store.archive, folder, self._rank, problem):
            if self._closing.wait(RETRY_SECONDS) or self._failed is not None or time.monotonic() >= end:
                return

    def _finish(
        self, store: Store, folder: str, content: dict[str, Any], about: Any, communities: Mapping[str, Any] | None
    ) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while True:
            failed = self._failed  # read before the files, which have the words of ranks that could write them
            if written(store.archive, folder, self._size):
                break
            if failed is not None:
                raise MgraphError(failed)
            if self._closing.wait(POLL_SECONDS) or time.monotonic() >= end:
                raise MgraphError("not all ranks have written their parts")
        if about is not None:
            store.create(about)
        content["communities"] = _write_communities(store, folder, communities)
        make_valid(store.archive, folder, self._size, content)

    def close(self) -> None:
        """End the snapshot that is being written; a small one is completed."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()


def _write_communities(store: Store, folder: str, content: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Write the names of communities into a snapshot, and return the description of the file; None for none."""
    if content is None:
        return None
    name = f"{folder}/{FILE}"
    store.archive.files.folder(store.archive.at(folder))
    write_communities(store.archive, name, store.about()["id"], content)
    return {"name": name}
