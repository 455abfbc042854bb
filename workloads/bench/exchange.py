"""``bench exchange``: latency and bandwidth of each collective by size, beside the bare transport's.

The bare transport is the exchange's own. For ``peer`` on GPUs it is NCCL, which maps GPU memory too, if the workers and
CuPy have it.

Runs on the workers of a real cluster, in the shards' threads, on the exchange that the library has connected: the
benchmark is a program like BFS. Every collective's result is checked before it is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from mgraph.algorithms import ALGORITHMS, Algorithm
from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.device import Array
from mgraph.errors import InvalidOption
from mgraph.exchange.choice import EXCHANGES, check_exchange, choose_exchange
from workloads.arguments import check_least
from workloads.bench.bare_transports import RAW, RawNccl
from workloads.bench.harness import Bench, Mismatch, counts_of, short

if TYPE_CHECKING:
    from mgraph.client.calls.coordinator import Coordinator

__all__ = ["HELP", "add_arguments", "collectives", "measure"]

HELP = "latency and bandwidth of each collective by size, beside the bare transport's"
PROGRAM = "bench_exchange"
SMALL = 1 << 16  #: bytes below which a call is repeated often
REDUCED = 1 << 14  #: bytes up to which allreduce is timed: it serves small host arrays


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="worker processes (default: one per GPU, or one per core)")
    add(
        "--exchange", default="auto", metavar="A,B", help="exchanges to measure, such as tcp,ucx (default: %(default)s)"
    )
    sizes = "8,65536,1048576,16777216,268435456"
    add("--sizes", default=sizes, metavar="N,N", help="bytes to each peer (default: %(default)s)")
    add(
        "--repeats",
        type=int,
        default=100,
        metavar="N",
        help="calls of under 64 KiB; a tenth of larger ones, at least 5",
    )


def measure(bench: Bench) -> None:
    """Start a cluster, and run the program on each exchange in turn."""
    from cluster import start  # the other benchmarks run without Dask
    from cluster.exchanges import open_ranks

    # Check the options.
    options = bench.options
    sizes = counts_of(options.sizes, "sizes")
    check_least(options, "repeats")
    names = options.exchange.split(",")
    for name in names:
        if name not in EXCHANGES:
            raise InvalidOption(f"--exchange names {name!r}; there are {', '.join(EXCHANGES)}")

    # Measure each exchange with fresh sessions.
    bench.free()
    with start(options.workers, device=bench.device.kind) as client:
        client.run(register)
        for name in names:
            with open_ranks(client) as ranks:
                check_exchange(name, len(ranks.addresses))
                _measure_one(bench, ranks, name, sizes)


def _measure_one(bench: Bench, ranks: Coordinator, name: str, sizes: list[int]) -> None:
    from cluster.exchanges import connect_ranks, look

    # Connect the exchange.
    addresses, size = ranks.addresses, len(ranks.addresses)
    device, inspections, apart = look(ranks, bench.device.kind, name)
    name = choose_exchange(name, device, addresses, inspections, apart)
    connect_ranks(ranks, device, name)

    # Run the program on all ranks.
    hosts = [urlsplit(address).hostname for address in addresses]
    raw = _baseline(name, device)
    args = {"sizes": sizes, "repeats": bench.options.repeats, "hosts": hosts, "raw": raw}
    answers = ranks.call("run", {"name": PROGRAM, "result": "times", "generation": 0, "args": args})
    _report(bench, name, size, raw, answers[0]["info"]["lines"])


def _baseline(exchange: str, device: str) -> str:
    """Return the bare transport beside which an exchange is timed; "" for none.

    It is NCCL for mapped GPU memory, because NCCL maps it too, and otherwise the exchange's own.
    """
    if exchange == "peer":
        return "nccl" if device == "cuda" else ""
    return exchange if exchange in RAW else ""


def _report(bench: Bench, name: str, size: int, raw: str, lines: list[dict[str, Any]]) -> None:
    bare_lines = {line["bytes"]: line for line in lines if line["call"].startswith("raw ")}
    rows = []
    # One row per call and size, relative to the bare transport.
    for line in lines:
        p50, p99 = line["p50_s"], line["p99_s"]
        sent, bare = line["bytes"] * (size - 1) / p50 / 1e9, bare_lines.get(line["bytes"])
        figures = {"call": line["call"], "bytes": line["bytes"], "n": line["n"]}
        figures |= {"p50_us": round(p50 * 1e6, 1), "p99_us": round(p99 * 1e6, 1), "gb_per_s_sent": float(f"{sent:.4g}")}
        figures["times_raw"] = round(p50 / bare["p50_s"], 3) if bare else None
        bench.add("exchange", exchange=name, ranks=size, **figures)
        times = figures["times_raw"]
        rows.append([line["call"], short(line["bytes"]), figures["p50_us"], figures["p99_us"], sent, times or ""])
    columns = ["call", "bytes a peer", "p50 us", "p99 us", "GB/s sent a rank", "times raw"]
    bench.table(f"{name}, {size} ranks, {bench.device.kind}: {RAW[raw].what if bare_lines else ''}", columns, rows)


# ---- on the workers ------------------------------------------------------------------------------------------------


def register() -> None:
    """Add the program to the algorithms of a worker's process."""
    ALGORITHMS[PROGRAM] = Algorithm(PROGRAM, dict, collectives, {}, ("lines",), lambda shard: None)


def collectives(shard: Shard, sizes: list[int], repeats: int, hosts: list[str], raw: str) -> Columns:
    """Check and time every collective at each size.

    A program: all ranks run it in lockstep.

    Returns
    -------
    columns : dict
        None.
    info : dict
        ``lines``: for each call and size the median and the 99th percentile in seconds, of the slowest rank.
    """
    lines: list[dict[str, Any]] = []

    # Small calls are repeated more often.
    def timed(call: str, nbytes: int, function: Callable[[], Any], settle: Callable[[], None] = _nothing) -> None:
        count = repeats if nbytes < SMALL else max(5, repeats // 10)
        lines.append({"call": call, "bytes": nbytes, "n": count, **_times(shard, function, count, settle)})

    # Time the collectives and the bare transport, size by size.
    bare = _bare_transport(shard, raw, hosts)
    try:
        for nbytes in sizes:
            _time_size(shard, nbytes, timed)
            if bare is not None:
                timed(f"raw {raw} alltoall", nbytes, bare.prepare(nbytes), bare.settle)
        timed("superstep", 0, lambda: _superstep(shard))
    finally:
        if bare is not None:
            bare.close()
    return {}, {"lines": lines}


def _bare_transport(shard: Shard, raw: str, hosts: list[str]) -> Any:
    """Return the connected bare transport `raw`; None for a single rank, or if a rank has no NCCL."""
    if not raw or shard.size == 1:
        return None
    if raw == "nccl" and not shard.exchange.least(int(RawNccl.installed())):
        return None
    return RAW[raw](shard.exchange, shard.device, hosts)


def _time_size(shard: Shard, nbytes: int, timed: Callable[..., None]) -> None:
    exchange, parts = shard.exchange, [_part(shard, shard.rank, r, nbytes) for r in range(shard.size)]
    # alltoallv and allgather
    _check(shard, exchange.alltoallv(parts), [_part(shard, r, shard.rank, nbytes) for r in range(shard.size)])
    timed("alltoallv", nbytes, lambda: exchange.alltoallv(parts))
    _check(shard, exchange.allgather(parts[0]), [_part(shard, r, 0, nbytes) for r in range(shard.size)])
    timed("allgather", nbytes, lambda: exchange.allgather(parts[0]))

    # allreduce, of small arrays
    if nbytes <= REDUCED:
        values = np.full(-(-nbytes // 8), shard.rank + 1, np.int64)
        if not (exchange.allreduce(values) == shard.size * (shard.size + 1) // 2).all():
            raise Mismatch(f"rank {shard.rank}: allreduce of {nbytes} bytes is wrong")
        timed("allreduce", nbytes, lambda: exchange.allreduce(values))


def _part(shard: Shard, source: int, target: int, nbytes: int) -> Array:
    return shard.device.full(nbytes, (source * 16 + target + 1) % 251, np.uint8)


def _check(shard: Shard, got: list[Array], expected: list[Array]) -> None:
    for source, (part, right) in enumerate(zip(got, expected, strict=True)):
        if len(part) != len(right) or not bool((part == right).all()):
            raise Mismatch(f"rank {shard.rank}: {len(right)} bytes from rank {source} arrived wrong")


def _superstep(shard: Shard) -> None:
    """Run the exchange of an empty BFS level: six counters, and an empty part to every rank."""
    shard.exchange.allreduce(np.zeros(6, np.int64))
    shard.exchange.alltoallv([shard.device.empty(0, np.uint32)] * shard.size)


def _nothing() -> None:
    """Do nothing after a series of calls: exchanges need no help to send queued messages."""


def _times(shard: Shard, function: Callable[[], Any], count: int, settle: Callable[[], None]) -> dict[str, float]:
    """Return median and 99th percentile of `count` calls, on the slowest rank."""
    # Warm up, and start together.
    seconds = np.zeros(count)
    function()
    settle()
    shard.exchange.barrier()

    # Time each call, until the device is done.
    for k in range(count):
        shard.device.synchronize()
        began = time.perf_counter()
        function()
        shard.device.synchronize()
        seconds[k] = time.perf_counter() - began
    settle()
    p50, p99 = shard.exchange.allreduce(np.percentile(seconds, [50, 99]), "max").tolist()
    return {"p50_s": p50, "p99_s": p99}
