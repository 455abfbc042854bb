"""NCCL between threads of one process, over NumPy arrays: what `Nccl` offers, for machines without a GPU.

As the real one, a communicator blocks until every rank is there, sends and receives match by order, and an operation
ends some time after it was queued: at a later `done`, once the other ranks have queued theirs.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from mgraph.exchange.nccl_api import ID_BYTES

LIMIT = 5  #: seconds after which a communicator counts as hanging; the real one waits for ever


class PretendError(RuntimeError):
    """What `NcclError` is."""


class World:
    """What the communicators of one unique id share."""

    def __init__(self, size: int) -> None:
        self.everybody = threading.Barrier(size)
        self.mail: dict[tuple[int, int], deque[np.ndarray]] = defaultdict(deque)


class PretendCommunicator:
    living: ClassVar[set[PretendCommunicator]] = set()

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.error = world, rank, ""
        self.awaited: deque[tuple[int, np.ndarray]] = deque()
        self.living.add(self)

    def check_async_error(self) -> None:
        if self.error:
            raise PretendError(self.error)


class PretendNccl:
    """Stands for `Nccl`."""

    error = PretendError
    worlds: ClassVar[dict[bytes, World]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.marked: PretendCommunicator | None = None
        self.queued: PretendCommunicator | None = None
        self.groups = 0

    def new_id(self) -> bytes:
        return os.urandom(ID_BYTES)

    def communicator(self, size: int, unique_id: bytes, rank: int) -> PretendCommunicator:
        with self.lock:
            world = self.worlds.setdefault(unique_id, World(size))
        try:
            world.everybody.wait(LIMIT)
        except threading.BrokenBarrierError:
            raise PretendError("unhandled system error") from None
        return PretendCommunicator(world, rank)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        yield

    def swap(self, comm: Any, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        self.groups += 1
        self.queued = comm
        for rank, part in sends:
            assert part.nbytes, "an empty send"
            comm.world.mail[comm.rank, rank].append(part.view(np.uint8).copy())
        for rank, part in receives:
            assert part.nbytes, "an empty receive"
            part.view(np.uint8)[:] = 0xEE  # what a reader would see that does not wait
            comm.awaited.append((rank, part.view(np.uint8)))

    def gather(self, comm: Any, size: int, row: np.ndarray) -> np.ndarray:
        rows = np.empty((size, row.size), np.uint8)
        rows[comm.rank] = row
        others = [r for r in range(size) if r != comm.rank]
        self.swap(comm, [(r, row) for r in others], [(r, rows[r]) for r in others])
        self.groups -= 1
        return rows

    def mark(self) -> None:
        self.marked = self.queued

    def done(self) -> bool:
        assert self.marked is not None
        comm = self.marked
        for _ in range(len(comm.awaited)):
            source, place = comm.awaited.popleft()
            mail = comm.world.mail[source, comm.rank]
            if mail:
                data = mail.popleft()
                assert data.size == place.size, "a send and its receive differ in length"
                place[:] = data
            else:
                comm.awaited.append((source, place))
        return not comm.awaited

    def abort(self, comm: Any) -> None:
        comm.awaited.clear()
        PretendCommunicator.living.discard(comm)
