"""``bench door``: edges from this process's memory into a graph on workers of this host, and a result's way back.

Each is measured twice: through memory that the client shares with the workers, and by Dask's comms alone. The batches
are in flight together, by `pipeline()`. The first pass inserts them; later ones insert the same edges again, so that
structures have less to do. Last they are only carried: the workers copy them to their device and do not apply them. A
result is compared between the two ways.
"""

from __future__ import annotations

import argparse
from typing import Any

import dask
import numpy as np
from distributed import Client

from cluster import start
from mgraph import DynamicGraph, EdgeBatch
from mgraph.batch import COUNTS
from mgraph.errors import InvalidOption
from mgraph.worker import calls
from mgraph.worker.calls import changes
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "edges a second from the client's memory, and the time of a result, by shared memory and by comms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="worker processes (default: one a GPU, or one a core)")
    add("--structure", default="gpma+", metavar="S", help="(default: %(default)s)")
    add("--vertices", type=int, default=1 << 24, metavar="N", help="a result has an int32 each (default: %(default)s)")
    add("--batch", type=int, default=4_000_000, metavar="N", help="edges of a batch (default: %(default)s)")
    add("--batches", type=int, default=8, metavar="N", help="of a pass (default: %(default)s)")
    add("--repeats", type=int, default=5, metavar="N", help="passes, and fetches of the result (default: %(default)s)")
    add("--bytes", default="", metavar="B", help="shared memory a worker at most (default: the library's)")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Start a cluster, and measure a graph of each way."""
    options, rows, found = bench.options, [], []
    if min(options.vertices, options.batch, options.batches, options.repeats) < 1:
        given = f"--vertices {options.vertices}, --batch {options.batch}, --batches {options.batches}"
        raise InvalidOption(f"{given}, --repeats {options.repeats}: at least 1 of each")
    rng = np.random.default_rng(options.seed)
    batches = [
        EdgeBatch(*rng.integers(0, options.vertices, (2, options.batch), np.uint32)) for _ in range(options.batches)
    ]
    bench.free()
    with start(options.workers, device="gpu" if bench.device.kind == "cuda" else "cpu") as client:
        for way in ("shared memory", "comms"):
            given = options.bytes if way == "shared memory" else "0"
            with dask.config.set({"mgraph.shared-memory": given} if given else {}):
                line, values = _measure_way(bench, client, batches)
            bench.add("door", way=way, **line)
            rows.append([way, *list(line.values())[-6:]])
            found.append(values)
    if not np.array_equal(found[0], found[1]):
        raise Mismatch("the results of the two ways differ")
    columns = ["way", "M edges/s, first pass", "again", "best", "carried", "result ms, least", "median"]
    title = f"{line['workers']} workers, {bench.device.kind}, batches of {options.batch:,}, {options.vertices:,} int32"
    bench.table(title, columns, rows)


def _measure_way(bench: Bench, client: Client, batches: list[EdgeBatch]) -> tuple[dict[str, Any], np.ndarray]:
    """What the record says of a way, and the result."""
    options, kind = bench.options, bench.device.kind
    with DynamicGraph(client, options.vertices, structure=options.structure, device=kind) as graph:

        def insert() -> None:
            with graph.pipeline() as pipe:
                for batch in batches:
                    pipe.update(batch)

        first, *again = bench.times(insert, 1 + options.repeats, warm=0)
        distances = graph.bfs(int(batches[0].src[0]))
        fetched, values = bench.times(distances.to_numpy, options.repeats), distances.to_numpy()
        client.run(replace_update)
        try:
            carried = bench.times(insert, options.repeats)
        finally:
            client.run(replace_update, back=True)
        n, workers = options.batch * options.batches / 1e6, len(graph.workers)
        rates = [n / first, n / float(np.median(again)), n / min(again), n / min(carried)]
        names = ["first_m_edges_per_s", "again_m_edges_per_s", "best_m_edges_per_s", "carried_m_edges_per_s"]
        line: dict[str, Any] = {"workers": workers, "batch": options.batch, "batches": options.batches}
        line |= {name: round(rate, 1) for name, rate in zip(names, rates, strict=True)}
        line["least_result_ms"] = round(min(fetched) * 1e3, 2)
        return {**line, "result_ms": round(float(np.median(fetched)) * 1e3, 2)}, values


# ---- on the workers --------------------------------------------------------------------------------------------------


def replace_update(back: bool = False) -> None:
    """Have a worker's process take batches without applying them; or `back` as it was."""
    calls._CALLS["update"] = changes.update if back else take


def take(rank: Any, epoch: int, ahead: bool = False, **columns: Any) -> dict[str, Any]:
    """Copy the columns of a batch to the device, if they are not there, and count them as a change."""
    shard = rank.shard
    for column in columns.values():
        shard.here(column)
    shard.device.synchronize()
    shard.epoch, shard.changes = epoch, shard.changes + 1
    return {"epoch": epoch, **dict.fromkeys(COUNTS, 0)}
