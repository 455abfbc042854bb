"""Shards for algorithms: a process that owns every vertex, with the programs of a worker's shard."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from mgraph.algorithms import warm
from mgraph.batch import EdgeBatch
from mgraph.device import Array
from mgraph.exchange import Loopback
from mgraph.partition import Partition
from mgraph.worker.shard.shard import Shard, ShardSpec
from workloads.arguments import check_least
from workloads.bench.harness import Bench
from workloads.bench.inputs import Edges, add_graph_arguments, chosen_structures, degree_order, filled
from workloads.inputs.worker_edges import weights_of

__all__ = ["Graph", "add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph and its options."""
    add_graph_arguments(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--symmetric", dest="directed", action="store_false", help="each edge both ways (the default)")
    way.add_argument("--directed", dest="directed", action="store_true", help="each edge one way, without in-edges")
    parser.set_defaults(directed=False)
    add = parser.add_argument
    add("--reverse", action="store_true", help="keep the in-edges of a directed graph too")
    add("--degree-order", action="store_true", help="ids by descending degree instead of shuffled ones")
    add("--parts", type=int, default=1, metavar="N", help="build from 1/N of the edges and insert the rest in batches")


class Graph:
    """The edges of a run, and a shard of them for each structure in turn.

    Parameters
    ----------
    bench : Bench
    weighted : bool
        True for edges with weights: whole numbers from 1 to 255, the same both ways.

    Attributes
    ----------
    src, dst : uint32[n_edges]
        As drawn: each edge once, with repeats.
    """

    def __init__(self, bench: Bench, weighted: bool = False) -> None:
        self.bench, self.weighted, options, xp = bench, weighted, bench.options, bench.xp
        # Draw the edges, and relabel them on demand.
        check_least(options, "parts")
        self.edges = edges = Edges(options, bench.device)
        self.n_vertices = edges.n_vertices
        self.src, self.dst = edges.between(0, edges.n_edges)
        self.ids = None
        if options.degree_order:
            self.ids = ids = degree_order(self.src, self.dst, self.n_vertices, xp)
            self.src, self.dst = ids[self.src], ids[self.dst]
        kind = "directed" if options.directed else "symmetric"
        bench.say(f"{edges.n_edges:,} edges drawn on {edges.n_vertices:,} vertices, {kind}, {bench.device}")

    def shards(self) -> Iterator[tuple[str, Shard]]:
        """Yield each structure's name and the graph in it, "csr" first.

        Drop a shard before the next.
        """
        for name in chosen_structures(self.bench.options):
            yield name, self._shard(name)
            self.bench.free()

    def _shard(self, name: str) -> Shard:
        # Fill the shard's structures.
        options = self.bench.options
        partition = Partition.equal(self.n_vertices, 1)
        spec = ShardSpec("bench", 0, partition, name, options.directed, self.weighted, options.reverse)
        shard = Shard(spec, Loopback(), self.bench.device)
        weight = self.weights() if self.weighted else None
        filled(shard.out_edges, self.src, self.dst, options.parts, mirrored=not options.directed, weight=weight)
        if options.directed and shard.in_edges is not None:
            filled(shard.in_edges, self.dst, self.src, options.parts, weight=weight)

        # Compile its programs.
        shard.num_edges = shard.out_edges.num_edges
        warm(shard)
        self.bench.free()
        self.bench.say(f"{name}: {shard.num_edges:,} arcs, {shard.nbytes / max(shard.num_edges, 1):.2f} bytes each")
        return shard

    def weights(self) -> Array:
        """Return the weight of each edge, a hash of its ends: float32[n_edges]."""
        return weights_of(self.src, self.dst, self.bench.xp)

    def insert_more(self, shard: Shard, size: int) -> None:
        """Insert the next `size` drawn edges as a batch."""
        # Draw and relabel the edges like the first ones.
        src, dst = self.edges.between(self.edges.n_edges, self.edges.n_edges + size)
        if self.ids is not None:
            src, dst = self.ids[src], self.ids[dst]
        if not self.bench.options.directed:
            src, dst = (self.bench.xp.concatenate(ends) for ends in ((src, dst), (dst, src)))

        # Insert them in both structures.
        shard.out_edges.insert(EdgeBatch(src, dst))
        if self.bench.options.directed and shard.in_edges is not None:
            shard.in_edges.insert(EdgeBatch(dst, src))
        shard.num_edges = shard.out_edges.num_edges

    def drawn_per_vertex(self) -> Array:
        """Return the number of drawn edges from each vertex: uint32[n_vertices].

        Their sum over the reached vertices is the edge count of Graph500's rate, which counts repeats.
        """
        return self.bench.xp.bincount(self.src, minlength=self.n_vertices).astype(np.uint32)

    def busiest(self) -> int:
        """Return the vertex of most drawn edges: it lies in the giant component."""
        return int(self.drawn_per_vertex().argmax())
