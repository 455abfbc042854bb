"""Shards as threads of this process, with an exchange that is a shared table: a run of all ranks without a cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import Exchange
from mgraph.protocol import ShardState
from mgraph.worker.calls import Calls, Host


class Table:
    """What the ranks of one fake exchange share."""

    def __init__(self, size: int) -> None:
        self.size, self.broken = size, False
        self.cells: dict[tuple[int, int, int], Any] = {}  #: by step, source and target
        self._arrived: Counter[int] = Counter()
        self._changed = threading.Condition()

    def meet(self, step: int) -> bool:
        """Wait until every rank has come to `step`; False where one gave up before."""
        with self._changed:
            self._arrived[step] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._arrived[step] == self.size or self.broken, 10)
            return self._arrived[step] == self.size

    def abort(self) -> None:
        """Release whoever waits."""
        with self._changed:
            self.broken = True
            self._changed.notify_all()


class FakeExchange(Exchange):
    """Lays parts on a table and waits for the others; closing releases them."""

    name = "fake"

    def __init__(self, rank: int, size: int, table: Table) -> None:
        super().__init__(rank, size, lambda: False)
        self.table, self.step = table, 0

    address = b""

    def connect(self, addresses: Sequence[bytes]) -> None:
        assert len(addresses) == self.size

    def alltoallv(self, parts: Sequence[Any], lengths: Any = None) -> list[Any]:
        self.step += 1
        for other, part in enumerate(parts):
            self.table.cells[self.step, self.rank, other] = part
        if not self.table.meet(self.step):
            raise Aborted(f"rank {self.rank}")
        return [self.table.cells.pop((self.step, other, self.rank)) for other in range(self.size)]

    def allgather(self, part: Any, lengths: Any = None) -> list[Any]:
        return self.alltoallv([part] * self.size)

    def gather_values(self, values: np.ndarray, call: str) -> list[Any]:
        return self.allgather(values)

    def close(self) -> None:
        self.table.abort()


class Ranks:
    """All ranks of one graph, called together as a coordinator would."""

    def __init__(
        self,
        starts: Sequence[int],
        memory_left: Callable[[int], int] = lambda rank: 1 << 62,
        device: str = "cpu",
        **spec: Any,
    ) -> None:
        self.size, self.attempt = len(starts) - 1, 0
        self.tables = [Table(self.size)]
        self.held: dict[str, Any] = {}  #: Dask data that the workers have
        self.servants = [
            Calls("g", rank, self.size, lambda: False, self._host(partial(memory_left, rank)))
            for rank in range(self.size)
        ]
        given = {"structure": "gpma+", "directed": True, "weighted": False, "reverse": False, "order": None, **spec}
        self.call("create", device=device, exchange="fake", starts=list(starts), **given)
        self.connect()

    def _host(self, memory_left: Callable[[], int]) -> Host:
        return Host(self._exchange, 1, Budget(memory_left), lambda key: self.held[key])

    def _exchange(self, name: str, rank: int, size: int, attempt: int, device: Device, aborted: Any) -> Exchange:
        return FakeExchange(rank, size, self.tables[attempt])

    def connect(self) -> None:
        for answers in (self.call("open_exchange"), self.call("connect_exchange", addresses=[b""] * self.size)):
            for error in answers:
                if isinstance(error, BaseException):
                    raise error

    def reconnect(self) -> None:
        """What the coordinator does after an abort."""
        for servant in self.servants:
            servant.settle()
        self.attempt += 1
        self.tables.append(Table(self.size))
        self.connect()

    @property
    def shards(self) -> list[Any]:
        return [servant.shard for servant in self.servants]

    def call(self, method: str, shares: Sequence[dict[str, Any]] | None = None, **args: Any) -> list[Any]:
        """Call every rank in its own thread; answers, or exceptions in their place."""
        answers: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            try:
                servant = self.servants[rank]
                call, share = servant.find(method, self.attempt), (shares or [{}] * self.size)[rank]
                value = call(**{**args, **share}) or {}
                answers[rank] = {**servant.state._asdict(), **value}
            except BaseException as error:
                answers[rank] = error
                if self.attempt < len(self.tables) and not isinstance(error, Aborted):
                    self.tables[self.attempt].abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return answers

    def update(self, batch: Any, epoch: int) -> list[Any]:
        n, size = len(batch), self.size
        parts = [batch[n * r // size : n * (r + 1) // size] for r in range(size)]
        names = ("src", "dst", "weight", "op")
        return self.call("update", [{name: getattr(part, name) for name in names} for part in parts], epoch=epoch)

    def ingest(self, sources: Sequence[dict[str, Any]], epoch: int) -> list[Any]:
        """Each rank reads its own source."""
        shares = [{"sources": [{"rank": rank, **source}]} for rank, source in enumerate(sources)]
        return self.call("ingest", shares, size=self.size, epoch=epoch)

    def snapshot(self) -> list[Any]:
        """Everything that a batch could change, copied."""
        return [
            (shard.epoch, shard.num_edges, [tuple(np.copy(a) for a in csr_of(s)) for s in shard.structures])
            for shard in self.shards
        ]


def csr_of(structure: Any) -> list[np.ndarray]:
    csr = structure.to_csr()
    return [array for array in (csr.offsets, csr.dst, csr.weight) if array is not None]


def settled(servant: Calls) -> ShardState:
    """The state of a rank after it gave its attempt up."""
    servant.settle()
    return servant.state
