"""``bench bfs``: the search that shards run, from random roots of the giant component.

The rate is Graph500's: the drawn edges among the reached vertices, repeats and self-loops included, each once, per
second of the search. Levels must equal those of ``csr``; predecessors too, and be edges one level up.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from mgraph.algorithms.paths.bfs.program import run as bfs
from mgraph.device import Array
from mgraph.splitmix import mix64
from mgraph.worker.shard.shard import Shard
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time BFS from random roots of the giant component, through the program that shards run"
WARM = 2  #: uncounted searches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    parser.add_argument("--roots", type=int, default=16, metavar="N", help="searches (default: %(default)s)")
    parser.add_argument("--predecessors", action="store_true", help="find the predecessors too")


def measure(bench: Bench) -> None:
    """Search each structure from the same roots."""
    # Draw the roots, once for all structures.
    check_least(bench.options, "roots")
    graph = Graph(bench)
    per_vertex = graph.drawn_per_vertex()
    roots: list[int] = []
    levels: dict[int, np.ndarray] = {}
    trees: dict[int, Any] = {}
    for name, shard in graph.shards():
        roots = roots or _roots(bench, shard, per_vertex)

        # Time the searches, after warm-up.
        for _ in range(WARM):
            bfs(shard, roots[0], predecessors=bench.options.predecessors)
        lines = [_search(bench, name, shard, root, per_vertex, levels) for root in roots]

        # Compare the trees by their hashes: csr's come first.
        hashes = {line["root"]: line.get("tree") for line in lines}
        trees = trees or hashes
        if hashes != trees:
            raise Mismatch(f"{name}: BFS from some of {roots} gives other predecessors than with csr")
        _summarise(bench, name, shard, lines)
        del shard

    # Print the table.
    columns = ["structure", "p50 ms", "p99 ms", "GTEPS, median", "levels", "bottom-up"]
    done = bench.record.of("bfs")
    rows = [[f[c] for c in ("structure", "p50_ms", "p99_ms", "gteps_median", "levels", "bottom_up")] for f in done]
    what = "levels and predecessors" if bench.options.predecessors else "levels"
    bench.table(f"BFS, {len(roots)} roots; {what} equal to csr's", columns, rows)


def _roots(bench: Bench, shard: Shard, per_vertex: Array) -> list[int]:
    """Draw roots among the vertices with an edge that the busiest vertex reaches: in the giant component."""
    distance = bfs(shard, int(per_vertex.argmax()))[0]["distance"]
    inside = bench.device.to_host(bench.xp.flatnonzero((distance >= 0) & (per_vertex > 0)))
    rng = np.random.default_rng(bench.options.seed)
    return rng.choice(inside, min(bench.options.roots, len(inside)), replace=False).tolist()


def _search(
    bench: Bench, name: str, shard: Shard, root: int, per_vertex: Array, levels: dict[int, np.ndarray]
) -> dict[str, Any]:
    """Time a search and check it.

    Keeps the first structure's levels on the host.
    """
    seconds, (columns, info) = bench.time(lambda: bfs(shard, root, predecessors=bench.options.predecessors))
    distance = columns["distance"]
    if bench.options.predecessors:
        info["tree"] = _checked_tree(bench, name, shard, root, columns)
    edges = int(per_vertex[distance >= 0].sum(dtype=np.int64))
    # Compare the levels.
    host = bench.device.to_host(distance)
    if not (levels.setdefault(root, host) == host).all():
        at = int((levels[root] != host).argmax())
        raise Mismatch(f"{name}: BFS from {root} finds {at} at {host[at]}, with csr at {levels[root][at]}")
    return bench.add(
        "search", structure=name, root=root, seconds=seconds, edges=edges, gteps=edges / seconds / 1e9, **info
    )


def _checked_tree(bench: Bench, name: str, shard: Shard, root: int, columns: dict[str, Array]) -> int:
    """Return a hash of the predecessors.

    Raises `Mismatch` if one is no in-neighbour one level up.
    """
    distance, predecessors = columns["distance"], columns["predecessors"]
    vertices = bench.xp.flatnonzero(distance > 0)
    # Vertices with a level above 0 have a predecessor, and no others.
    if not bool(((predecessors >= 0) == (distance > 0)).all()):
        raise Mismatch(f"{name}: BFS from {root} gives a wrong vertex a predecessor, or one none")

    # Each predecessor is an in-neighbour, one level up.
    before = predecessors[vertices]
    edges = shard.out_edges.has_edges(before.astype(np.uint32), vertices.astype(np.uint32))
    if not bool(edges.all()) or not bool((distance[before] == distance[vertices] - 1).all()):
        raise Mismatch(f"{name}: BFS from {root} gives a predecessor that is no in-neighbour one level up")
    return int(mix64((vertices.astype(np.uint64) << np.uint64(32)) | before.astype(np.uint64)).sum(dtype=np.uint64))


def _summarise(bench: Bench, name: str, shard: Shard, lines: list[dict[str, Any]]) -> None:
    rates = np.array([line["gteps"] for line in lines])
    shape = {key: int(np.median([line[key] for line in lines])) for key in ("levels", "reached", "bottom_up")}
    bench.add(
        "bfs",
        structure=name,
        arcs=shard.num_edges,
        bytes_per_arc=round(shard.nbytes / max(shard.num_edges, 1), 3),
        **summary([line["seconds"] for line in lines]),
        gteps_median=round(float(np.median(rates)), 4),
        gteps_harmonic_mean=round(float(len(rates) / (1 / rates).sum()), 4),
        **shape,
    )
