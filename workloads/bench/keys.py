"""``bench keys``: inserts by users' own ids into a graph of this process, relative to inserts by numbers.

A first batch brings all keys. Batches of random edges among them follow, with known keys only; their median counts.
Integers are on the device. Strings are an Arrow array in host memory.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from mgraph.distinct import distinct
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch, short

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "inserts by users' own ids, beside those by numbers, and bytes of a key"
KINDS = (None, "int64", "string")
#: values of a line, by the heading of their column in the table
COLUMNS = {"ids": "ids", "keys in the batch": "batch", "edges": "edges", "median ms": "p50_ms"}
COLUMNS |= {"M edges/s": "m_edges_per_s", "relative to numbers": "times", "bytes per key": "bytes_a_key"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--keys", type=float, default=1e6, metavar="N", help="different keys (default: %(default)s)")
    add("--batch", type=float, default=1e6, metavar="N", help="edges of a batch (default: %(default)s)")
    add("--batches", type=int, default=5, metavar="N", help="with known keys (default: %(default)s)")
    add("--structure", default="gpma+", metavar="S", help="(default: %(default)s)")
    add("--seed", type=int, default=1, help="of keys and edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Time the batches of each kind of ids.

    All graphs must then have the same edges.
    """
    # Draw a first batch with every key, and batches of random edges.
    options = bench.options
    options.keys, options.batch = int(options.keys), int(options.batch)
    check_least(options, "keys", "batch", "batches")
    rng = np.random.default_rng(options.seed)
    first = rng.permutation(options.keys)
    batches = [
        np.stack([first, np.roll(first, 1)]),
        *rng.integers(0, options.keys, (options.batches, 2, options.batch)),
    ]

    # Draw sparse keys.
    sparse = distinct(rng.integers(-(2**63), 2**63, options.keys + options.keys // 8 + 8))
    sparse = rng.permutation(sparse)[: options.keys]

    # Time each kind, relative to numbers.
    rows, plain, edges = [], dict[str, float](), set[int]()
    for kind in KINDS:
        for line in _kind(bench, kind, sparse, batches):
            line["times"] = round(line["p50_ms"] / plain.setdefault(line["batch"], line["p50_ms"]), 2)
            edges.add(line.pop("total"))
            rows.append([line[name] for name in COLUMNS.values()])
            bench.add("keys", **line)
    if len(edges) != 2:  # Compare the numbers of edges: two, after the first batch and after all.
        raise Mismatch(f"graphs of the same edges have {sorted(edges)} of them")
    bench.table(f"inserts into a graph of {short(options.keys)} vertices", [*COLUMNS], rows)


def _kind(bench: Bench, kind: str | None, sparse: np.ndarray, batches: list[np.ndarray]) -> list[dict[str, Any]]:
    """Return the lines of a kind of ids: a batch with new keys, and batches with known keys."""
    # Make the columns that users would pass.
    options = bench.options
    graph_options: dict[str, Any] = {"n_vertices": options.keys} if kind is None else {"keys": kind}
    graph_options |= {"structure": options.structure, "device": bench.device.kind}
    names = None if kind is None else _names(sparse, kind)
    columns = [[_column(bench, kind, names, end) for end in batch] for batch in batches]
    lines = []
    with DynamicGraph(**graph_options) as small:  # load the kernels
        small.insert(*(end[:9] for end in columns[0]))

    # Time the two kinds of batches.
    with DynamicGraph(**graph_options) as graph:
        for batch, several in (("new", columns[:1]), ("known", columns[1:])):
            seconds = float(np.median([bench.time(partial(graph.insert, *ends))[0] for ends in several]))
            table, n = graph._directory.numbering.keys, len(several[0][0])
            lines.append({
                "ids": kind or "numbers", "batch": batch, "edges": n, "p50_ms": round(seconds * 1e3, 2),
                "m_edges_per_s": round(n / seconds / 1e6, 2), "total": graph.num_edges,
                "bytes_a_key": 0.0 if table is None else round(table.nbytes / graph.num_vertices, 1),
            })  # fmt: skip
    bench.free()
    return lines


def _names(sparse: np.ndarray, kind: str) -> Any:
    """Return the key of each number."""
    if kind == "int64":
        return sparse
    import pyarrow as pa

    return pa.array(sparse).cast(pa.large_string())


def _column(bench: Bench, kind: str | None, names: Any, ends: np.ndarray) -> Any:
    """Return an end of the edges as an argument of `insert`."""
    if kind is None:
        return bench.device.asarray(ends, np.uint32)
    return names.take(ends) if kind == "string" else bench.device.asarray(names[ends])
