"""Ranks as threads: a strict exchange over shared lists, and shards of a graph cut at any places."""

from __future__ import annotations

import inspect
import os
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Vertex, VertexData, Vertices
from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import Exchange, Loopback
from mgraph.exchange.grouped import GroupedExchange
from mgraph.exchange.groups import Groups
from mgraph.exchange.links import Link
from mgraph.kernels import constants
from mgraph.partition import Partition
from mgraph.structures import Structure, create
from mgraph.structures.plan import DELETED

_WORLD = constants("kernels/world_common.cuh")
STEP = _WORLD["step_at"]
LIMIT = 60  #: seconds after which a rank counts as hanging


def said_bytes(size: int) -> int:
    """The bytes that a rank says at a meeting: counts of messages, numbers, and what it shares."""
    return 8 * (size + _WORLD["number_count"] + _WORLD["share_words"])


class Meeting:
    """Where the threads of one graph meet: one place a rank, and every call in lockstep."""

    def __init__(self, size: int) -> None:
        self.places: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.parts: dict[str, Meeting] = {}  # of the groups, and of their gateways

    @cached_property
    def sockets(self) -> list[int]:
        """The descriptors of two connected sockets, which do not block. They are closed with this object."""
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
        numbers = [end.detach() for end in pair]
        weakref.finalize(self, lambda: [os.close(number) for number in numbers])
        return numbers

    def part(self, name: str, size: int) -> Meeting:
        """Where some of the ranks meet."""
        return self.parts.setdefault(name, Meeting(size))

    def swap(self, rank: int, call: str, mine: Any) -> list[Any]:
        """What every rank brought; all must be in the same call."""
        self.barrier.wait(LIMIT)
        self.places[rank] = (call, mine)
        self.barrier.wait(LIMIT)
        calls, brought = zip(*self.places, strict=True)
        assert len(set(calls)) == 1, f"ranks are in different calls: {calls}"
        return list(brought)


class ThreadExchange(Exchange):
    """Checks the contract's rules on what it is given, copies what travels and counts its bytes."""

    name = "threads"

    def __init__(self, rank: int, size: int, meeting: Meeting, aborted: Callable[[], bool] = lambda: False) -> None:
        super().__init__(rank, size, aborted)
        self.meeting = meeting
        self.calls: list[tuple[str, int]] = []  # name, bytes that left this rank

    address = b""

    def connect(self, addresses: Sequence[bytes]) -> None:
        assert len(addresses) == self.size

    def _check(self, *parts: Any) -> None:
        if self.aborted():
            self.meeting.barrier.abort()
            raise Aborted(f"rank {self.rank}: aborted")
        for part in parts:
            assert part.ndim == 1
            assert part.flags.c_contiguous
            assert part.dtype == parts[0].dtype

    def alltoallv(self, parts: Sequence[Any], lengths: Any = None) -> list[Any]:
        self._check(*parts)
        assert len(parts) == self.size
        assert lengths is None or [len(part) for part in parts] == lengths[self.rank].tolist()
        self.calls.append(("alltoallv", sum(p.nbytes for r, p in enumerate(parts) if r != self.rank)))
        sent = self.meeting.swap(self.rank, f"alltoallv {parts[0].dtype}", [part.copy() for part in parts])
        return [parts[r] if r == self.rank else sent[r][self.rank] for r in range(self.size)]

    def allgather(self, part: Any) -> list[Any]:
        self._check(part)
        self.calls.append(("allgather", part.nbytes * (self.size - 1)))
        sent = self.meeting.swap(self.rank, f"allgather {part.dtype}", part.copy())
        return [part if r == self.rank else sent[r] for r in range(self.size)]

    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        self._check(values)
        assert isinstance(values, np.ndarray)
        self.calls.append(("allreduce", values.nbytes * (self.size - 1)))
        return self.meeting.swap(self.rank, f"{call} {values.dtype}", values.copy())

    def close(self) -> None:
        self.meeting.barrier.abort()
        self.close_world()


class LinkedExchange(ThreadExchange):
    """The exchange of two gateways with sockets, by which programs send to each other."""

    def __init__(self, rank: int, size: int, meeting: Meeting, aborted: Callable[[], bool]) -> None:
        super().__init__(rank, size, meeting, aborted)
        self.number = meeting.sockets[rank]

    def links(self) -> list[Link] | None:
        return [Link([1 - self.rank], self.number, self.number, 1, self._fail)]

    def _fail(self, code: int, error: BaseException | None) -> NoReturn:
        raise Aborted(f"rank {self.rank}: the other gateway is in call {code}")

    def close(self) -> None:
        with socket.socket(fileno=os.dup(self.number)) as end, suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        super().close()


@dataclass
class FakeShard:
    """What an algorithm sees of a shard."""

    rank: int
    partition: Partition
    device: Device
    exchange: Exchange
    out_edges: Structure
    in_edges: Structure | None
    directed: bool = True
    order: Any = None
    epoch: int = 1

    @property
    def by_name(self) -> Any:
        return self.order

    @property
    def names(self) -> Any:
        return None if self.order is None else self.device.asarray(np.argsort(Device.to_host(self.order)), np.uint32)

    @property
    def size(self) -> int:
        return self.partition.size

    @property
    def n_vertices(self) -> int:
        return self.partition.n_vertices

    @property
    def lo(self) -> int:
        return self.partition.range(self.rank)[0]

    @property
    def hi(self) -> int:
        return self.partition.range(self.rank)[1]


@dataclass
class Graph:
    """Edges with ids 0 .. n - 1; of an undirected graph each edge once."""

    n: int
    src: np.ndarray
    dst: np.ndarray
    directed: bool = True
    name: str = field(default="graph")
    weight: np.ndarray | None = None  #: float32, of each edge

    @property
    def arcs(self) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations as stored: both ways where the graph is undirected, an edge's arcs together."""
        if self.directed:
            return self.src, self.dst
        return np.column_stack([self.src, self.dst]).ravel(), np.column_stack([self.dst, self.src]).ravel()

    @property
    def arc_weights(self) -> np.ndarray | None:
        """The weight of each arc."""
        return self.weight if self.directed or self.weight is None else np.repeat(self.weight, 2)

    def matrix(self) -> Any:
        """The adjacency matrix as SciPy's CSR, 1 an arc without weights; of repeats the last weight counts."""
        import scipy.sparse as sp

        src, dst = self.arcs
        if self.weight is not None:
            keys = src.astype(np.int64) * self.n + dst
            _, first = np.unique(keys[::-1], return_index=True)
            last = len(keys) - 1 - first
            return sp.csr_array(
                (self.arc_weights[last].astype(np.float64), (src[last], dst[last])), shape=(self.n, self.n)
            )
        matrix = sp.coo_array((np.ones(len(src)), (src, dst)), shape=(self.n, self.n)).tocsr()
        matrix.data[:] = 1  # repeats were summed
        return matrix

    def __str__(self) -> str:
        return self.name


def _rows(
    structure: str, device: Device, lo: int, hi: int, n: int, row: np.ndarray, dst: np.ndarray,
    weight: np.ndarray | None,
) -> Structure:  # fmt: skip
    held = create(structure, n, device=device, n_rows=hi - lo, weighted=weight is not None)
    mine = (row >= lo) & (row < hi)
    held.build(EdgeBatch(row[mine] - lo, dst[mine], None if weight is None else weight[mine]))
    return held


def cut(n: int, size: int, even: bool = True) -> Partition:
    """Ranges of equal length, or of very unequal length that begin at no word; the first one is empty."""
    if even or size == 1:
        return Partition.equal(n, size)
    inner = sorted(min(n, n * r * r // (size * size) | 1) for r in range(1, size - 1))
    return Partition((0, 0, *inner, n))


def thread_exchange(
    rank: int, size: int, meeting: Meeting, aborted: Callable[[], bool], device: Device, mapped: bool | str
) -> Exchange:
    """The exchange of a rank: see `shards`."""
    if mapped in ("hosts", "carried") and size > 1:
        of = tuple(int(r >= -(-size // 2)) for r in range(size))

        def open_part(name: str, ranks: Sequence[int], pair: str) -> Exchange:
            make = LinkedExchange if pair and mapped == "hosts" else ThreadExchange
            return make(ranks.index(rank), len(ranks), meeting.part(f"{name}{pair}{ranks}", len(ranks)), aborted)

        return GroupedExchange(rank, size, aborted, device, groups=Groups(of, "tcp"), open_part=open_part)
    exchange = Loopback(aborted) if size == 1 else ThreadExchange(rank, size, meeting, aborted)
    exchange.mates = tuple(range(size)) if mapped else (rank,)
    return exchange


def shards(
    graph: Graph, partition: Partition, structure: str = "gpma+", reverse: bool = False, device: str = "cpu",
    aborted: Callable[[], bool] = lambda: False, mapped: bool | str = True,
) -> list[FakeShard]:  # fmt: skip
    """One shard a rank, with in-edges where the graph is undirected or `reverse` is asked for.

    With `mapped` the ranks meet in memory that all have mapped; else the exchange carries. With "hosts" the first
    half of the ranks map each other's memory, and so do the others; gateways send to each other within a launch. With
    "carried" launches end there instead, as between GPUs or over TLS.
    """
    (src, dst), weight = graph.arcs, graph.arc_weights
    size, meeting, made = partition.size, Meeting(partition.size), []
    for rank in range(size):
        lo, hi = partition.range(rank)
        here = Device(device, 0, threads=2)
        apart = mapped if device == "cpu" else False  # ranks that share a GPU do not meet
        exchange = thread_exchange(rank, size, meeting, aborted, here, apart)
        out = _rows(structure, here, lo, hi, graph.n, src, dst, weight)
        back = out if not graph.directed else None
        if graph.directed and reverse:
            back = _rows(structure, here, lo, hi, graph.n, dst, src, weight)
        made.append(FakeShard(rank, partition, here, exchange, out, back, graph.directed))
    return made


def change_rows(made: Sequence[FakeShard], keys: np.ndarray, kinds: np.ndarray) -> None:
    """Insert and delete arcs on the ranks that own them, which have the ids of a graph without weights."""
    src, dst, op = keys >> np.uint64(32), keys & np.uint64(2**32 - 1), np.where(kinds == DELETED, -1, 1).astype(np.int8)
    for shard in made:
        sides = [(shard.out_edges, src, dst)]
        if shard.in_edges is not None and shard.in_edges is not shard.out_edges:
            sides.append((shard.in_edges, dst, src))
        for rows, row, id in sides:
            mine = (row >= shard.lo) & (row < shard.hi)
            rows.apply(EdgeBatch((row[mine] - shard.lo).astype(np.uint32), id[mine].astype(np.uint32), op=op[mine]))


def facts(made: Sequence[FakeShard]) -> GraphFacts:
    """What the check of an algorithm's arguments looks at."""
    first = made[0]
    return GraphFacts(first.n_vertices, first.directed, first.out_edges.weighted, first.in_edges is not None)


def run(made: Sequence[FakeShard], algorithm: Algorithm, *args: Any, **options: Any) -> tuple[Any, dict]:
    """The whole result of an algorithm run on every shard at once, one thread each; the infos must agree.

    The result is one array, or a dict of several.
    """
    checked = algorithm.check(facts(made), *args, **options)
    assert set(checked) <= set(inspect.signature(algorithm.run).parameters)

    def given(value: Any, shard: FakeShard) -> Any:
        if isinstance(value, Vertex):
            return value.id
        if isinstance(value, Vertices):
            return value.ids
        return np.asarray(value.values)[..., shard.lo : shard.hi] if isinstance(value, VertexData) else value

    return run_program(
        made, lambda shard: algorithm.run(shard, **{name: given(value, shard) for name, value in checked.items()}),
        algorithm,
    )  # fmt: skip


def run_program(
    made: Sequence[FakeShard], program: Callable[[FakeShard], Any], algorithm: Algorithm
) -> tuple[Any, dict]:
    """The same of a call of the program itself, with arguments that are right."""

    def body(shard: FakeShard) -> Any:
        shard.device.use()
        try:
            arrays, info = program(shard)
        except BaseException:
            shard.exchange.close()
            raise
        assert list(arrays) == [name for name in algorithm.columns if name in arrays]
        assert set(info) == set(algorithm.scalars)
        if algorithm.result is None:
            assert all(one.shape[-1] == shard.hi - shard.lo for one in arrays.values())
        return {name: Device.to_host(one) for name, one in arrays.items()}, info

    with ThreadPoolExecutor(len(made)) as pool:
        futures = [pool.submit(body, shard) for shard in made]
        errors = [error for f in futures if (error := f.exception(LIMIT)) is not None]
        if errors:  # the first cause, rather than a barrier that it broke
            raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
        results = [future.result() for future in futures]
    assert all(info == results[0][1] for _, info in results), [info for _, info in results]
    phases = [int(world._control[STEP]) for shard in made if (world := shard.exchange._world) is not None]
    assert len(set(phases)) <= 1, f"ranks ran different numbers of phases: {phases}"
    if algorithm.result is not None:
        parts = {name: [arrays[name] for arrays, _ in results] for name in results[0][0]}
        return algorithm.result(parts, results[0][1], lambda ids: ids), results[0][1]
    whole = {name: np.concatenate([arrays[name] for arrays, _ in results], axis=-1) for name in results[0][0]}
    return next(iter(whole.values())) if len(whole) == 1 else whole, results[0][1]
