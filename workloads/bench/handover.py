"""``bench handover``: edges from this process's memory into a graph on workers of this host, and results back.

Each is measured in turn through shared memory of the client and the workers, and by Dask's comms alone. The batches are
in flight together, in a `pipeline()`. The first pass inserts them; later ones insert the same edges again, so that
structures have less to do. The last passes only carry them: the workers copy them to their device and do not apply
them. The results of the two ways are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mgraph import DynamicGraph, EdgeBatch
from mgraph.batch import COUNTS
from mgraph.worker import calls
from mgraph.worker.calls import changes
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "edges per second from the client's memory, and the time of a result, by shared memory and by comms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="worker processes (default: one per GPU, or one per core)")
    add("--structure", default="gpma+", metavar="S", help="(default: %(default)s)")
    add("--vertices", type=int, default=1 << 24, metavar="N", help="a result has an int32 each (default: %(default)s)")
    add("--batch", type=int, default=4_000_000, metavar="N", help="edges of a batch (default: %(default)s)")
    add("--batches", type=int, default=8, metavar="N", help="of a pass (default: %(default)s)")
    add("--repeats", type=int, default=5, metavar="N", help="passes, and fetches of the result (default: %(default)s)")
    add("--bytes", default="", metavar="B", help="shared memory per worker at most (default: the library's)")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Start a cluster with a graph per way, and measure them in turn."""
    from cluster import start

    # Draw the batches.
    options = bench.options
    check_least(options, "vertices", "batch", "batches", "repeats")
    rng = np.random.default_rng(options.seed)
    batches = [
        EdgeBatch(*rng.integers(0, options.vertices, (2, options.batch), np.uint32)) for _ in range(options.batches)
    ]

    # Open the two graphs.
    bench.free()
    with (
        start(options.workers, device=bench.device.kind) as client,
        _graph(bench, client, options.bytes) as shared,
        _graph(bench, client, "0") as far,
    ):
        _measure(bench, client, {"shared memory": shared, "comms": far}, batches)


def _graph(bench: Bench, client: Any, nbytes: str) -> DynamicGraph:
    import dask

    options = bench.options
    with dask.config.set({"mgraph.shared-memory": nbytes} if nbytes else {}):
        return DynamicGraph(client, options.vertices, structure=options.structure, device=bench.device.kind)


def _measure(bench: Bench, client: Any, graphs: dict[str, DynamicGraph], batches: list[EdgeBatch]) -> None:
    options = bench.options

    def insert(graph: DynamicGraph) -> None:
        with graph.pipeline() as pipe:
            for batch in batches:
                pipe.update(batch)

    # Insert, fetch a result, and carry.
    first = _in_turn(bench, graphs, insert, 1)
    again = _in_turn(bench, graphs, insert, options.repeats)
    results = {way: graph.bfs(int(batches[0].src[0])) for way, graph in graphs.items()}
    values = [result.to_numpy() for result in results.values()]
    if not np.array_equal(values[0], values[1]):
        raise Mismatch("the results of the two ways differ")
    fetched = _in_turn(bench, results, lambda result: result.to_numpy(), options.repeats)
    client.run(replace_update)
    try:
        carried = _in_turn(bench, graphs, insert, options.repeats)
    finally:
        client.run(replace_update, back=True)

    # One row per way.
    n, rows = options.batch * options.batches / 1e6, []
    for way, graph in graphs.items():
        rates = {"first": n / first[way][0], "again": n / float(np.median(again[way])), "best": n / min(again[way])}
        rates["carried"] = n / min(carried[way])
        figures = {f"{name}_m_edges_per_s": round(rate, 1) for name, rate in rates.items()}
        figures["least_result_ms"] = round(min(fetched[way]) * 1e3, 2)
        figures["result_ms"] = round(float(np.median(fetched[way])) * 1e3, 2)
        bench.add(
            "handover", way=way, workers=len(graph.workers), batch=options.batch, batches=options.batches, **figures
        )
        rows.append([way, *figures.values()])
    columns = ["way", "M edges/s, first pass", "again", "best", "carried", "result ms, least", "median"]
    where = f"{len(client.ncores())} workers, {bench.device.kind}"
    bench.table(f"{where}, batches of {options.batch:,}, results of {options.vertices:,} int32", columns, rows)


def _in_turn(
    bench: Bench, subjects: dict[str, Any], call: Callable[[Any], Any], repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of `repeats` calls on each thing, round by round, so that other load affects all alike."""
    taken: dict[str, list[float]] = {way: [] for way in subjects}
    for _ in range(repeats):
        for way, subject in subjects.items():
            taken[way].append(bench.time(partial(call, subject))[0])
    return taken


# ---- on the workers --------------------------------------------------------------------------------------------------


def replace_update(back: bool = False) -> None:
    """Let a worker's process take batches without applying them; or with `back`, apply them again."""
    calls.HANDLERS["update"] = changes.update if back else take


def take(rank: Any, epoch: int, ahead: bool = False, **columns: Any) -> dict[str, Any]:
    """Copy the columns of a batch to the device, and count them as a change."""
    shard = rank.shard
    for column in columns.values():
        shard.here(column)
    shard.device.synchronize()
    shard.epoch, shard.changes = epoch, shard.changes + 1
    return {"epoch": epoch, **dict.fromkeys(COUNTS, 0)}
