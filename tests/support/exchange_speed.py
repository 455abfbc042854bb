"""How fast the collectives of an exchange are beside its bare transport, measured in the same processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from exchange_programs import median

from mgraph.exchange import Exchange
from mgraph.exchange.ucxx_api import Ucxx

SIZES = [8, 64 << 10, 1 << 20, 16 << 20, 256 << 20]
HOST_LIMIT = 16 << 20  #: allreduce is for small host arrays

Times = dict[tuple[str, int], float]  #: median seconds of a collective of so many bytes to each rank


def collectives(exchange: Exchange, aborted: threading.Event, sizes: Sequence[int], raw: str = "") -> dict[str, Times]:
    """The exchange's times and, with `raw` = "nccl" or "ucx", those of a bare transport set up beside it."""
    import cupy

    def alltoallv(n: int) -> Callable[[], Any]:
        parts = [cupy.full(n, exchange.rank, np.uint8) for _ in range(exchange.size)]
        return lambda: exchange.alltoallv(parts)

    def allgather(n: int) -> Callable[[], Any]:
        part = cupy.full(n, exchange.rank, np.uint8)
        return lambda: exchange.allgather(part)

    def allreduce(n: int) -> Callable[[], Any]:
        values = np.ones(n // 8)
        return lambda: exchange.allreduce(values)

    def measured(made: dict[str, Callable[[int], Callable[[], Any]]], host: bool = True) -> Times:
        times = {}
        for name, make in made.items():
            for n in sizes:
                if not (host and name == "allreduce" and n > HOST_LIMIT):
                    times[name, n] = median(make(n), exchange, _repeats(n))
        return times

    both = {"exchange": measured({"alltoallv": alltoallv, "allgather": allgather, "allreduce": allreduce})}
    if raw == "nccl":
        both["raw"] = measured(_bare_nccl(exchange), host=False)
    elif raw == "ucx":
        both["raw"] = measured(_bare_ucx(exchange), host=False)
    return both


def supersteps(exchange: Exchange, aborted: threading.Event) -> dict[str, float]:
    """Median seconds of what a level of a search exchanges where there is nothing to do, and parts of it."""
    import cupy

    empty = [cupy.zeros(0, np.uint32)] * exchange.size
    short = [cupy.zeros(100, np.uint32)] * exchange.size
    counts = np.zeros(6, np.int64)

    def level() -> None:
        exchange.allreduce(counts)
        exchange.alltoallv(empty)

    def full_level() -> None:
        exchange.allreduce(counts)
        exchange.alltoallv(short)

    calls = {
        "allreduce of 48 B": lambda: exchange.allreduce(counts),
        "alltoallv of nothing": lambda: exchange.alltoallv(empty),
        "empty superstep": level,
        "superstep of 400 B a rank": full_level,
    }
    return {name: median(call, exchange, _repeats(8)) for name, call in calls.items()}


def _repeats(n: int) -> int:
    """How often to call a collective of `n` bytes."""
    return 500 if n <= 1 << 16 else 100 if n <= 1 << 20 else 30 if n <= 1 << 24 else 10


def speed_table(title: str, columns: dict[str, list[Times]], size: int) -> str:
    """The slowest rank's medians: microseconds, and GB/s that each rank sends to the others."""
    lines = [title, " " * 24 + "".join(f"{name:>24}" for name in columns)]
    for what in sorted({key for ranks in columns.values() for key in ranks[0]}):
        cells = []
        for ranks in columns.values():
            seconds = max((times.get(what, 0.0) for times in ranks), default=0.0)
            rate = what[1] * (size - 1) / seconds / 1e9 if seconds else 0.0
            cells.append(f"{seconds * 1e6:12.1f} us{rate:7.1f} G" if seconds else " " * 24)
        lines.append(f"{what[0]:10}{what[1]:>12} B" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _shared(exchange: Exchange, mine: bytes, room: int = 8192) -> list[bytes]:
    """What every rank gave, by a sum over a table in which each fills one row."""
    rows = np.zeros((exchange.size, room), np.int64)
    rows[exchange.rank, : len(mine) + 1] = [len(mine), *mine]
    return [bytes(row[1 : 1 + int(row[0])].astype(np.uint8)) for row in exchange.allreduce(rows)]


def _bare_nccl(exchange: Exchange) -> dict[str, Callable[[int], Callable[[], Any]]]:
    """NCCL with known lengths and buffers at hand, the stream waited for."""
    import cupy
    from cupy.cuda import nccl

    rank, size = exchange.rank, exchange.size
    unique_id = _shared(exchange, bytes(nccl.get_unique_id()) if rank == 0 else b"")[0]
    comm, stream = nccl.NcclCommunicator(size, unique_id, rank), cupy.cuda.get_current_stream()

    def alltoallv(n: int) -> Callable[[], Any]:
        out, into = cupy.zeros((size, n), np.uint8), cupy.zeros((size, n), np.uint8)

        def call() -> None:
            nccl.groupStart()
            for r in range(size):
                if r != rank:
                    comm.send(out[r].data.ptr, n, nccl.NCCL_UINT8, r, stream.ptr)
                    comm.recv(into[r].data.ptr, n, nccl.NCCL_UINT8, r, stream.ptr)
            nccl.groupEnd()
            stream.synchronize()

        return call

    def allgather(n: int) -> Callable[[], Any]:
        out, into = cupy.zeros(n, np.uint8), cupy.zeros(size * n, np.uint8)

        def call() -> None:
            comm.allGather(out.data.ptr, into.data.ptr, n, nccl.NCCL_UINT8, stream.ptr)
            stream.synchronize()

        return call

    def allreduce(n: int) -> Callable[[], Any]:
        out, into = cupy.zeros(n // 8), cupy.zeros(n // 8)

        def call() -> None:
            comm.allReduce(out.data.ptr, into.data.ptr, n // 8, nccl.NCCL_FLOAT64, nccl.NCCL_SUM, stream.ptr)
            stream.synchronize()

        return call

    return {"alltoallv": alltoallv, "allgather": allgather, "allreduce": allreduce}


def _bare_ucx(exchange: Exchange) -> dict[str, Callable[[int], Callable[[], Any]]]:
    """UCXX's tagged sends and receives with known lengths and buffers at hand; there is no reduction to compare."""
    import cupy

    api, rank, size = Ucxx(), exchange.rank, exchange.size
    worker = api.worker({})
    addresses = _shared(exchange, worker.address.tobytes())
    others = [r for r in range(size) if r != rank]
    endpoints = {r: api.endpoint(worker, addresses[r]) for r in others}
    steps = iter(range(1 << 30))

    def swap(out: dict[int, Any], into: dict[int, Any]) -> None:
        step = next(steps) << 16
        requests = [worker.tag_recv(into[r], api.tag(step | r)) for r in others]
        requests += [endpoints[r].tag_send(out[r], api.tag(step | rank)) for r in others]
        while not all(request.completed for request in requests):
            worker.progress()

    def alltoallv(n: int) -> Callable[[], Any]:
        out, into = ({r: api.array(cupy.zeros(n, np.uint8)) for r in others} for _ in range(2))
        cupy.cuda.get_current_stream().synchronize()  # UCX keeps no stream's order
        return lambda: swap(out, into)

    def allgather(n: int) -> Callable[[], Any]:
        part = api.array(cupy.zeros(n, np.uint8))
        into = {r: api.array(cupy.zeros(n, np.uint8)) for r in others}
        cupy.cuda.get_current_stream().synchronize()
        return lambda: swap(dict.fromkeys(others, part), into)

    return {"alltoallv": alltoallv, "allgather": allgather}
