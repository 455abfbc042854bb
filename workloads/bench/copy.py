"""``bench copy``: copies of a graph, and the slowdown of a graph and its copy by each other.

- ``clone``: the clone of a shard in this process, per structure, against a copy of as many bytes.
- ``client``: `g.copy()` on workers, until its first call could run.
- ``beside``: batches on the graph, alone and while a betweenness runs on a copy; the betweenness alone and beside them.
- ``freed``: the memory of the workers and of this process before and after many copies.

Batches insert new edges and delete them again in turn, so the graph keeps its size. The results of the betweenness are
compared.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from mgraph import DynamicGraph, EdgeBatch
from mgraph.errors import InvalidOption
from mgraph.structures import names
from mgraph.worker.memory import resident_bytes
from mgraph.worker.shard.shard import Shard
from mgraph.worker.vertices.copying import copied
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch, short, summary
from workloads.bench.inputs import Edges
from workloads.bench.shards import Graph
from workloads.bench.shards import add_arguments as add_shard_arguments

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "copies of a graph, and batches beside a betweenness on a copy"
PARTS = ("clone", "client", "beside", "freed")
WARM = 4  #: uncounted batches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add_shard_arguments(parser)
    parser.set_defaults(structure=",".join(names()))
    add = parser.add_argument
    add("--measure", default=",".join(PARTS), metavar="A,B", help="what is measured (default: %(default)s)")
    add("--workers", type=int, metavar="N", help="worker processes (default: one per GPU, or one per core)")
    add("--graph", default="gpma+", metavar="S", help="structure of the graph on workers (default: %(default)s)")
    add("--part", type=int, default=1 << 24, metavar="N", help="edges a worker draws at once while building")
    add("--batch", type=int, default=1_000_000, metavar="N", help="edges of a batch (default: %(default)s)")
    add(
        "--batches",
        type=int,
        default=20,
        metavar="N",
        help="pairs of batches that are timed alone before the betweenness, and again after it (default: %(default)s)",
    )
    add("--sources", type=int, default=64, metavar="N", help="of the betweenness (default: %(default)s)")
    add("--repeats", type=int, default=10, metavar="N", help="copies that are timed (default: %(default)s)")
    add("--copies", type=int, default=1000, metavar="N", help="copies that are made and freed (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Measure clones of shards in this process, then a graph on workers."""
    # Check the options.
    options = bench.options
    check_least(options, "part", "batch", "batches", "sources", "repeats", "copies")
    chosen = options.measure.split(",")
    if unknown := [name for name in chosen if name not in PARTS]:
        raise InvalidOption(f"--measure names {unknown[0]!r}; there are {', '.join(PARTS)}")

    # Clone shards.
    if "clone" in chosen:
        rows = [_cloned(bench, name, shard) for name, shard in Graph(bench).shards()]
        columns = ["structure", "bytes", "clone ms", "least", "memory copy ms", "times as long"]
        bench.table(f"clones of a shard, medians of {options.repeats}", columns, rows)
        bench.free()

    # Copy a graph on workers.
    if chosen != ["clone"]:
        from cluster import start

        with start(options.workers, device=bench.device.kind) as client, _graph(bench, client) as graph:
            for name, part in (("client", _copied), ("beside", _beside), ("freed", _freed)):
                if name in chosen:
                    part(bench, client, graph)


# ---- in this process -------------------------------------------------------------------------------------------------


def _cloned(bench: Bench, name: str, shard: Shard) -> list[Any]:
    """Time clones of a shard, and copies of as many bytes. Returns a row for the table."""
    # A copy's memory and stream, as `mgraph.worker.calls.creation.copy` makes them.
    device = replace(bench.device, background=True).with_stream()
    seconds = []
    for number in range(1 + bench.options.repeats):
        with device.selected():
            spent, twin = bench.time(lambda: copied(shard, "copy", shard.spec.structure, device))
        if (twin.num_edges, twin.nbytes) != (shard.num_edges, shard.nbytes):
            raise Mismatch(f"{name}: the copy has {twin.num_edges} edges in {twin.nbytes} bytes, not those of {shard}")
        if number:
            seconds.append(spent)
        del twin
    device.release_unused()

    # Compare with a copy of the same bytes.
    line, plain = summary(seconds), bench.copy_seconds(shard.nbytes) * 1e3
    share = round(line["p50_ms"] / plain, 3)
    bench.add("clone", structure=name, nbytes=shard.nbytes, arcs=shard.num_edges, **line, copy_ms=plain, share=share)
    return [name, short(shard.nbytes), line["p50_ms"], line["min_ms"], plain, share]


# ---- on workers ------------------------------------------------------------------------------------------------------


def _graph(bench: Bench, client: Any) -> DynamicGraph:
    """Return an undirected graph of all edges, drawn on the workers."""
    options, edges = bench.options, Edges(bench.options, bench.device)
    graph = DynamicGraph(
        client, edges.n_vertices, structure=options.graph, directed=options.directed, device=bench.device.kind
    )
    per_step = min(options.part, -(-edges.n_edges // len(graph.workers)))
    graph.ingest(edges.source(0, per_step), steps=-(-edges.n_edges // (per_step * len(graph.workers))))
    bench.say(f"{options.graph}: {graph.num_edges:,} edges on {len(graph.workers)} workers, {bench.device.kind}")
    return graph


def _copied(bench: Bench, client: Any, graph: DynamicGraph) -> None:
    """Time copies through the client."""
    seconds = []
    for _ in range(1 + bench.options.repeats):
        spent, h = bench.time(graph.copy)
        seconds.append(spent)
        if h.fingerprint() != graph.fingerprint():
            raise Mismatch("a copy differs from its graph")
        h.close()
    line = summary(seconds[1:])
    bench.add("client", workers=len(graph.workers), nbytes=graph.nbytes, edges=graph.num_edges, **line)
    bench.say(f"copy through a client: {line['p50_ms']} ms, at most {line['max_ms']} ms, {short(graph.nbytes)} bytes")


def _beside(bench: Bench, client: Any, graph: DynamicGraph) -> None:
    """Time batches and a betweenness, each alone, then both at once."""
    options, edges = bench.options, Edges(bench.options, bench.device)
    drawn = edges.between(edges.n_edges, edges.n_edges + options.batch)
    src, dst = (bench.device.to_host(column) for column in drawn)
    batches = [EdgeBatch(src, dst, op=np.full(options.batch, op, np.int8)) for op in (1, -1)]

    def change(number: int) -> float:
        began = time.perf_counter()
        graph.update(batches[number % 2])
        return time.perf_counter() - began

    with graph.copy(structure="csr") as h, ThreadPoolExecutor(1) as analyst:

        def analyse() -> tuple[float, np.ndarray]:
            began = time.perf_counter()
            values = h.betweenness_centrality(k=options.sources, seed=1).to_numpy()
            return time.perf_counter() - began, values

        # Each alone.
        h.betweenness_centrality(k=1, seed=1)
        alone = [change(number) for number in range(WARM + 2 * options.batches)][WARM:]
        algorithm_alone, expected = analyse()

        # Both, until the betweenness ends.
        running, beside, count = analyst.submit(analyse), list[float](), 0
        while not running.done() or count % 2:
            seconds, count = change(count), count + 1
            if not running.done():
                beside.append(seconds)
        algorithm_beside, values = running.result()

        # The batches alone again: other work on the machine comes and goes.
        alone += [change(number) for number in range(2 * options.batches)]

    # Compare the results.
    if not np.array_equal(values, expected):
        raise Mismatch("the betweenness beside batches differs from the one alone")
    if not beside:
        raise InvalidOption(f"--sources is {options.sources}; the betweenness ended before a batch")
    lines = {"alone": summary(alone), "beside": summary(beside)}
    shares = {name: round(lines["beside"][name] / lines["alone"][name], 3) for name in ("p50_ms", "mean_ms", "max_ms")}
    share = round(algorithm_beside / algorithm_alone, 3)
    bench.add(
        "beside", workers=len(graph.workers), batch=options.batch, sources=options.sources, batches=lines,
        shares=shares, algorithm_alone_s=algorithm_alone, algorithm_beside_s=algorithm_beside, algorithm_share=share,
        load=os.getloadavg()[0],
    )  # fmt: skip
    rows = [
        [f"batch of {short(options.batch)}, ms", lines["alone"]["p50_ms"], lines["beside"]["p50_ms"], shares["p50_ms"]],
        ["the same, mean", lines["alone"]["mean_ms"], lines["beside"]["mean_ms"], shares["mean_ms"]],
        ["the same, most", lines["alone"]["max_ms"], lines["beside"]["max_ms"], shares["max_ms"]],
        [f"betweenness, {options.sources} sources, ms", algorithm_alone * 1e3, algorithm_beside * 1e3, share],
    ]
    bench.table(f"{len(beside)} batches beside a betweenness", ["what", "alone", "beside", "times as long"], rows)


def _freed(bench: Bench, client: Any, graph: DynamicGraph) -> None:
    """Make and free many copies, and compare the memory before and after."""
    kind, copies = bench.device.kind, bench.options.copies

    def make(n: int) -> None:
        for _ in range(n):
            graph.copy().close()
        gc.collect()

    make(max(10, copies // 10))
    before = {"workers": sum(client.run(used_bytes, kind).values()), "client": resident_bytes()}
    seconds, _ = bench.time(lambda: make(copies))
    after = {"workers": sum(client.run(used_bytes, kind).values()), "client": resident_bytes()}
    more = {name: after[name] - before[name] for name in before}
    bench.add("freed", copies=copies, seconds=seconds, before=before, after=after, nbytes=graph.nbytes)
    bench.say(
        f"{copies:,} copies in {seconds:.1f} s: {more['workers']:,} bytes more on the workers, {more['client']:,} here"
    )


def used_bytes(kind: str) -> int:
    """Return the bytes of a worker's process, or of its GPU, without the unused memory of pools; runs there."""
    gc.collect()
    if kind == "cpu":
        return resident_bytes()
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)
