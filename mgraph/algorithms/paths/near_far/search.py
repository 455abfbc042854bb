"""Near-far search for shortest paths on each rank: lists of near and far vertices, and messages to other ranks.

A vertex whose length falls is listed again: as near if the length is below a limit, else as far. Once no rank has near
vertices, the limit rises to the least far length plus `delta`. So lengths are final in steps of `delta`, as in
delta-stepping [1]_, but with two lists instead of many buckets [2]_, and each vertex is listed at most once. No step
reads more than its lists: nothing scans all vertices.

All ranks run the turns as a single program (`search.cuh`, `mgraph.exchange.world`). A turn relaxes the near rows, and
the lengths that other ranks have sent. It costs one meeting of the ranks, and another if it has rows of high degree. A
rise of the limit costs two. A rank sends the length of another rank's vertex when it falls below the shortest that this
rank has found, as 8 bytes, or 16 with wide words. A length that does not fit into the inbox is sent in another meeting.
Lengths that fall again later are corrected, so the result is the same. On a GPU, all tiles take places in the lists
from the same few counters; so each tile keeps what it has found, and takes places for 32 vertices at a time.

A search that resumes after a change (`NearFarSearch.resume`) begins at many places, far from and near to the source,
most of which change few vertices. In the order of lengths they would run one after another. On a single rank with a
GPU, each block takes some of these places and continues from them independently (`RelaxBlockwise`), in no order. Few
lengths fall again if they have bounds (`paths.incremental_paths`). What is left after some launches is a search in
order again.

References
----------
.. [1] U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms 49, 2003.
.. [2] A. Davidson, S. Baxter, M. Garland, J. D. Owens, "Work-efficient parallel GPU methods for single-source shortest
   paths", IPDPS 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels, task_room
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.device import Array, Device
from mgraph.exchange.regions import Layout
from mgraph.exchange.world import World
from mgraph.kernels import Library, Struct, constants, load
from mgraph.structures import Structure

__all__ = ["HOPS", "Lengths", "NearFarSearch", "hop_kernels", "library"]

#: the most near vertices, and the most suspects, for blocks that continue independently
BLOCKWISE = {"cuda": 1 << 17, "cpu": 0}
BLOCKWISE_TILES = 1024  #: tiles of such a launch
BLOCKWISE_STEPS = 32  #: steps of a block between two meetings of all blocks
BLOCKWISE_TURNS = 64  #: meetings per launch, after which the host checks whether the call was aborted
BLOCKWISE_LAUNCHES = 16  #: launches after which a search continues in the order of lengths
BLOCKWISE_FILE = "algorithms/paths/near_far/relax_blockwise.cuh"
TURN, NEAR, EDGES = 0, 1, 9  #: words of its state
assert constants(BLOCKWISE_FILE, LENGTHS=32, HUB_DEGREE=64)["s_edges"] == EDGES
NONE = 2**64 - 1


@dataclass(frozen=True)
class Lengths:
    """Kind of lengths: the kernels' macro LENGTHS, the dtype of a word, and the word of an unreached vertex."""

    bits: int
    word: type
    none: int

    @classmethod
    def of(cls, dtype: str) -> Lengths:
        """Return the kind for float32 or float64 lengths."""
        if dtype == "float32":
            return cls(32, np.uint32, int(np.float32(np.inf).view(np.uint32)))
        return cls(64, np.uint64, int(np.float64(np.inf).view(np.uint64)))

    def limit(self, least: int, delta: float) -> int:
        """Return the next limit: `least` + `delta`, but always above `least`; none for hops if `delta` is 0."""
        if self.bits == 0:
            return least + (int(delta) << 32) if delta else NONE
        real = np.float32 if self.bits == 32 else np.float64
        with np.errstate(over="ignore"):
            more = real(self.word(least).view(real) + real(delta))
        return max(int(more.view(self.word)), least + 1)


HOPS = Lengths(0, np.uint64, NONE)  #: hops << 32 | source


def library(shard: Shard, lengths: Lengths, edges: Structure | None = None) -> Library:
    """Return the program of a search along `edges`, by default the shard's out-edges."""
    view = (edges or shard.out_edges).view()
    return kernels(shard, "algorithms/paths/near_far/search.cuh", view, LENGTHS=lengths.bits)


def hop_kernels(shard: Shard) -> Library:
    """Return the kernel of `NearFarSearch.hops`."""
    return load(shard.device, "algorithms/paths/near_far/hops.cuh")


class NearFarSearch:
    """Lists and lengths of a search.

    They take 4 bytes per vertex of the whole graph (8 with wide words) and 16 bytes per owned vertex; bitmaps take
    1 / 8 byte per vertex of the whole graph, and 1 / 4 byte per owned vertex. On several ranks inboxes take 2 bytes per
    vertex of the whole graph (4 with wide words), at least 2 MiB per rank.

    Parameters
    ----------
    shard : Shard
    lengths : Lengths
    delta : float
        The step by which the limit of near vertices rises.
    edges : Structure, optional
        The edges to follow, by default the shard's out-edges.
    length : uint32 or uint64[n_vertices], optional
        The lengths at the beginning; by default no vertex is reached.
    common : bool
        True to have one array of lengths of all ranks if they have `one_memory`. It holds the result of `run` until the
        next program, and `resume` is not possible.

    Attributes
    ----------
    length : uint32 or uint64[n_vertices]
        The shortest length that this rank knows of each vertex.
    rounds : int
        The turns and the rises of the limit so far.
    edges : int
        The edges that this rank has followed in the last search.
    reached : int
        The vertices that the last `run` reached on all ranks; unknown with lengths in hops.
    """

    def __init__(
        self,
        shard: Shard,
        lengths: Lengths,
        delta: float = 0.0,
        edges: Structure | None = None,
        length: Array = None,
        common: bool = False,
    ) -> None:
        self.shard, self.lengths, self.delta, self.device = shard, lengths, delta, shard.device
        # Allocate lengths, lists and bitmaps; a search clears what it uses.
        device, n = shard.device, shard.hi - shard.lo
        self.n, n_vertices = n, shard.n_vertices
        self.common = common and self.world.one_memory
        if self.common:
            length = self.world.common_array(self._layout(), "lengths", n_vertices, lengths.word)
        self.length = device.empty(n_vertices, lengths.word) if length is None else length
        self.lists = device.empty(4 * n, np.uint32)
        self.marks = device.empty(2 * (-(-n // 32) + 1), np.uint32)
        self.held = device.empty(-(-shard.n_vertices // 32) + 1, np.uint32)
        self.least, self.arrived = device.empty(2, np.uint64), device.zeros(1, np.uint64)
        self.rounds = self.edges = self.reached = 0
        self.set_edges(edges or shard.out_edges)

    @property
    def world(self) -> World:
        """The world of the current exchange, which another one replaces after a failed call."""
        return self.shard.exchange.world(self.device)

    def set_edges(self, edges: Structure) -> None:
        """Follow `edges` in their current state."""
        self.structure, self.view = edges, edges.view()
        self.tasks = self.device.empty(task_room(edges), np.uint64)

    def run(self, sources: Array, words: Array) -> None:
        """Find the lengths of the shortest paths from `sources`, which begin with the lengths `words`."""
        self.edges = 0
        self._search(sources, words, clears=True)

    def resume(self, sources: Array, words: Array) -> None:
        """Continue an earlier search from `sources` with the lengths `words`.

        O(n / 32) besides the search. All other lengths stay. Blocks continue independently if the search
        `relaxes_blockwise`. On a single rank with a CPU, lengths in hops are final one after another. Elsewhere the
        meetings for each rise of the limit would take longer.
        """
        self.edges = 0
        if self.relaxes_blockwise and len(sources) <= BLOCKWISE[self.device.kind]:
            sources, words = self._relax_blockwise(sources, words)
        if self.shard.size > 1 or len(sources):
            self._search(sources, words, clears=False)

    def _layout(self) -> Layout:
        """Lay out the inboxes, with 8 or 16 bytes per message; with one array of lengths 4 bytes, and the array."""
        shard, bits = self.shard, self.lengths.bits
        if not self.common:
            return self.world.layout(shard.partition, inbox_room(shard), 8 if bits == 32 else 16)
        n, on_the_way = shard.n_vertices, -(-shard.n_vertices // 32)
        lengths = n * np.dtype(self.lengths.word).itemsize + 4 * on_the_way
        return self.world.layout(shard.partition, inbox_room(shard), 4, {"lengths": lengths})

    def _search(self, sources: Array, words: Array, clears: bool) -> None:
        """Run the program on all ranks, after a reset of all lengths with `clears`."""
        # Lay out the inboxes, with 8 or 16 bytes per message.
        device, shard, lengths, n = self.device, self.shard, self.lengths, len(sources)
        in_order = not clears and shard.size == 1 and device.kind == "cpu" and lengths.bits == 0
        limit = 1 if in_order else lengths.limit(0, self.delta)
        layout, arcs = self._layout(), self.structure.num_edges

        # Run the program, and add up its counters.
        state = self.world.run(
            library(shard, lengths, self.structure), "NearFar", layout, 1 + (self.n + arcs) // 256,
            graph=self.view, length=self.length, none=lengths.none, clears=int(clears),
            sources=device.asarray(sources), words=device.asarray(words), n_sources=n,
            limit=limit, delta=self.delta, lists=self.lists, marks=self.marks, held=self.held,
            least=self.least, tasks=self.tasks,
        )  # fmt: skip
        self.rounds += state["rounds"]
        self.edges += state["edges"]
        self.reached = state["reached"]

    def hops(self, nearest: Array = None) -> tuple[Array, dict[str, int]]:
        """Return the hops to the own vertices, int32[hi - lo], -1 for none, and the numbers of levels and of reached.

        The lengths are `HOPS`. With `nearest`, int64[hi - lo], the labels of the nearest sources are written there, -1
        for none. An allgather of two numbers.
        """
        shard, device, counts = self.shard, self.device, self.device.zeros(2, np.int64)
        distance, words = device.empty(self.n, np.int32), self.length[shard.lo : shard.hi]
        hop_kernels(shard).SplitHops(self.n, words=words, n=self.n, distance=distance, nearest=nearest, found=counts)
        every = np.stack(shard.exchange.gather_values(Device.to_host(counts), "allgather"))
        return distance, {"levels": int(every[:, 1].max()), "reached": int(every[:, 0].sum())}

    # ---- from many places at once, on a single rank ------------------------------------------------------------------

    @property
    def relaxes_blockwise(self) -> bool:
        """True if blocks may continue independently: on a single rank."""
        return self.shard.size == 1 and BLOCKWISE[self.device.kind] > 0

    def _relax_blockwise(self, sources: Array, words: Array) -> tuple[Array, Array]:
        """Continue from many places at once. Returns the vertices from which a search must go on, and their lengths."""
        # List the sources.
        device, state = self.device, self.device.zeros(EDGES + 1, np.int64)
        library = kernels(self.shard, BLOCKWISE_FILE, self.view, LENGTHS=self.lengths.bits)
        lists = Struct(length=self.length, n=self.n, lists=self.lists, marks=self.marks, state=state)
        device.fill(self.marks, 0)
        library.BeginBlockwise(
            len(sources), search=lists, sources=device.asarray(sources), words=device.asarray(words), n=len(sources)
        )

        # Go on while vertices are near, for some launches.
        for _ in range(BLOCKWISE_LAUNCHES):
            library.RelaxBlockwise(
                BLOCKWISE_TILES, graph=self.view, search=lists, turns=BLOCKWISE_TURNS, steps=BLOCKWISE_STEPS,
                tasks=self.tasks, arrived=self.arrived,
            )  # fmt: skip
            counts = Device.to_host(state)
            turn = int(counts[TURN])
            near = int(counts[NEAR + turn % 3])
            self.shard.exchange.barrier()  # an aborted call ends here
            if near == 0:
                break
        self.edges += int(counts[EDGES])
        rest = self.lists[(turn & 1) * self.n :][:near].copy()
        return rest, device.astype(self.length[rest], np.uint64)

    # ---- several ranks -----------------------------------------------------------------------------------------------

    def all_gather(self) -> None:
        """Gather the lengths of all vertices on every rank. One allgather."""
        if self.shard.size == 1:
            return
        for r, theirs in enumerate(self.shard.exchange.allgather(self.length[self.shard.lo : self.shard.hi])):
            if r != self.shard.rank:
                first, end = self.shard.partition.range(r)
                self.length[first:end] = theirs
