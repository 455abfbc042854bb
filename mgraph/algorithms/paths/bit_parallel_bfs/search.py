"""Bit-parallel breadth-first search on each rank: up to 64 searches, one bit per vertex and search [1]_.

A level expands the frontier: the vertices that any search reached in the level before. So all searches that are at the
same vertex share each read of an edge.

All ranks run the levels as a single program (`search.cuh`, `mgraph.exchange.world`). The searches that reach a vertex
of another rank in a level travel as a message of 16 bytes, sent after the level's expansion; CPU ranks that map each
other's memory collect them in one array, and a message of 8 bytes names the vertex. A level costs one meeting
of the ranks, and another for each further part if the messages exceed an inbox. A caller that reads each level's
vertices runs the program level by level: the words and lists stay in memory between the runs. Of a single search, the
lists of all levels have room.

References
----------
.. [1] M. Then, M. Kaufmann, F. Chirigati, T. Hoang-Vu, K. Pham, A. Kemper, T. Neumann, H. T. Vo, "The more the merrier:
   efficient multi-source graph traversal", PVLDB 8(4), 2014.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels, task_room
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.device import Array
from mgraph.kernels import Library, constants

__all__ = ["LEVELS", "SEARCHES", "BitParallelBfs", "warm"]

_FILE = "algorithms/paths/bit_parallel_bfs/search.cuh"
SEARCHES = constants(_FILE)["searches"]  #: searches at a time
LEVELS = 1024  #: levels of a run whose lists are kept


def library(shard: Shard) -> Library:
    """Return the kernels of a search over the shard's out-edges."""
    return kernels(shard, _FILE, shard.out_edges.view())


def warm(shard: Shard) -> None:
    """Compile the kernels of a search for this shard."""
    library(shard)


class BitParallelBfs:
    """Up to 64 searches, which all ranks run together.

    Their words and lists take 16 bytes per vertex of the whole graph, 16 bytes per owned vertex and, on several ranks,
    4 bytes per vertex of the whole graph. Inboxes take 4 bytes per vertex of the whole graph, at least 4 MiB per rank.
    On CPU ranks of one host, the first rank has the words of all, and inboxes take half of that.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k]
        Internal ids, 64 at most; the same on every rank.
    distance : int32[k * (hi - lo)], optional
        Distances of the own vertices from each source, which `run` writes; all -1 before.
    keeps : bool
        Keep the lists of all levels of a single search. Then a run is of at most `LEVELS` levels.
    """

    def __init__(self, shard: Shard, sources: np.ndarray, distance: Array = None, keeps: bool = False) -> None:
        self.shard, self.device, self.kernels = shard, shard.device, library(shard)

        # Allocate the words and lists.
        device, n_vertices, n, edges = shard.device, shard.n_vertices, shard.hi - shard.lo, shard.out_edges
        self.world = world = shard.exchange.world(device)
        private = 0 if world.one_memory else n_vertices
        coming, seen, self.now, self.lists, out, out_counts, tasks, counts = device.carve(
            (private, np.uint64), (private, np.uint64), (n, np.uint64), (2 * n, np.uint32),
            (private if shard.size > 1 else 0, np.uint32), (shard.size, np.int64), (task_room(edges), np.uint64),
            (LEVELS, np.int64),
        )  # fmt: skip
        # All ranks have inboxes for messages of 16 bytes, or of 8 with one array of each word.
        room = inbox_room(shard)
        if world.one_memory:
            words = dict.fromkeys(("coming", "seen"), 8 * n_vertices)
            self.layout = world.layout(shard.partition, room, 8, words, out=4 * n_vertices)
            coming, seen = (world.common_array(self.layout, name, n_vertices, np.uint64) for name in words)
            out = world.array(self.layout, "out", n_vertices, np.uint32)
        else:
            self.layout = world.layout(shard.partition, room, 16)
        self.counts: Array = counts if keeps else None
        self.fields = {
            "graph": edges.view(), "coming": coming, "seen": seen, "now": self.now, "lists": self.lists,
            "distance": distance, "out": out, "out_counts": out_counts, "sources": device.asarray(sources),
            "n_sources": len(sources), "tasks": tasks, "counts": self.counts,
        }  # fmt: skip

        self.items = 1 + (n + edges.num_edges) // 256
        self.state = {"level": -1, "first": 0, "listed": 0}

    def run(self, last: int) -> bool:
        """Run the levels up to `last`. Returns False if no rank reached a vertex in the last level that ran."""
        before = self.state["level"]
        self.state = self.world.run(
            self.kernels, "BitParallel", self.layout, self.items, level_before=self.state["level"],
            first_before=self.state["first"], listed_before=self.state["listed"], last_level=last, **self.fields,
        )  # fmt: skip
        more = self.state["found"] > 0
        self.n_levels = self.state["level"] - before - (not more)
        return more

    def counted(self) -> list[int]:
        """Return how many own vertices are in each level of the last run, if all lists are kept."""
        return self.device.to_host(self.counts[: self.n_levels]).tolist()

    def found(self) -> Array:
        """Return the own vertices of all levels, uint32, if all lists are kept: in any order within a level."""
        return self.lists[: self.state["first"] + self.state["listed"]] + np.uint32(self.shard.lo)

    def reached(self, first: int) -> tuple[Array, Array]:
        """Return the own vertices of the last level, and `first` + the search that reached each.

        They are int64, in any order. A vertex that several searches reached has a row for each.
        """
        state, n = self.state, self.shard.hi - self.shard.lo
        listed = self.lists[n * (state["level"] & 1) :][: state["listed"]]
        vertex, source = (self.device.empty(state["pairs"], np.int64) for _ in range(2))
        self.kernels.Emit(
            len(listed), list=listed, count=len(listed), now=self.now, first_vertex=self.shard.lo, first_source=first,
            next=self.device.zeros(1, np.int64), vertex=vertex, source=source,
        )  # fmt: skip
        return vertex, source
