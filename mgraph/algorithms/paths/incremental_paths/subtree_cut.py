"""Cut of whole subtrees below unsupported suspects, by pointer jumping.

Chains on roads have thousands of vertices, and each step along a chain waits for memory. So each vertex of the graph
gets a parent that supports it, and pointers jump up to the roots of these trees, in a few passes over all vertices.
If there are few suspects, `InvalidatePersistent` is tried first, since chains may be short. Both read the graph's rows;
rows that are read here are not counted as visited edges.

The parents are kept from call to call. A parent remains valid if both lengths, and the edge between the two vertices,
have not changed. So the next call reads few rows.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES
from mgraph.algorithms.paths.incremental_paths.counters import EDGES, SUSPECTS, TIED, TURNS
from mgraph.algorithms.paths.near_far.search import NearFarSearch
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, View

__all__ = ["SubtreeCut"]

JUMPS = 6  #: rounds of jumps between two checks whether all pointers have arrived


class SubtreeCut:
    """Parents and old lengths of all vertices, on a single rank.

    They take 8 bytes per vertex, 12 with wide words, from the first cut on.

    Parameters
    ----------
    search : NearFarSearch
        The search whose lengths are maintained.
    kernels : Library
        The kernels of ``incremental_paths.cuh``.
    tree : Struct
        The kernels' ``TreeState``.
    """

    def __init__(self, search: NearFarSearch, kernels: Library, tree: Struct) -> None:
        self.device, self.n, self.length = search.device, search.n, search.length
        self.kernels, self.tree = kernels, tree
        self.state, self.marked, self.listed = (tree.values[name] for name in ("state", "cut", "listed"))
        self.hung: Array = None  # the parent of each vertex in the last call
        self.then: Array = None  # the lengths in the last call
        self.stale: Array = None  # a bitmap of the ends of edges that have changed since the last call

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(array.nbytes) for array in (self.hung, self.then, self.stale) if array is not None)

    def cut(self, edges: View, changed: Struct, n: int) -> np.ndarray:
        """Cut the subtrees below unsupported suspects of `n` changed arcs. Returns the words of the state.

        If a vertex has only a parent of its own length, nothing is cut, the word `TIED` is set, and the suspects are
        listed anew.
        """
        # Find the parent of each vertex.
        device, kernels, tree, state, rows = self.device, self.kernels, self.tree, self.state, self.n
        self._suspect_again(changed, n)
        self._hang(edges)

        # Jump to the roots until no pointer moves, and cut the vertices whose roots are cut.
        while True:
            device.fill(state[TURNS:], 0)
            for round in range(JUMPS):
                kernels.JumpToRoot(rows, tree=tree, round=round)
            kernels.CutSubtrees(rows, tree=tree, round=JUMPS - 1)
            words = Device.to_host(state).copy()
            if not words[TURNS + JUMPS - 1]:
                break

        # Clear the suspects; after a tie, list them anew.
        device.fill(state[TURNS:], 0)
        if words[TIED]:
            self._suspect_again(changed, n)
            return words
        device.fill(self.listed, 0)
        device.fill(state[SUSPECTS : SUSPECTS + 1], 0)
        words[SUSPECTS] = 0
        return words

    def _suspect_again(self, changed: Struct, n: int) -> None:
        for words in (self.marked, self.listed, self.state[:EDGES], self.state[TIED:]):
            self.device.fill(words, 0)
        self.kernels.ListSuspects(n, tree=self.tree, changed=changed, stale=self.stale)

    def _hang(self, edges: View) -> None:
        """Find a supporting parent of each vertex, later of stale vertices only."""
        device, first = self.device, self.hung is None
        if first:
            self.hung, self.then = device.empty(self.n, np.uint32), self.length.copy()
        else:
            self.kernels.MarkStale(self.n, tree=self.tree, then=self.then, stale=self.stale)
        stale = None if first else self.stale
        self.kernels.HangOnSupport(-(-self.n // LANES), graph=edges, tree=self.tree, hung=self.hung, stale=stale)
        if first:
            self.stale = device.zeros(-(-self.n // 32), np.uint32)
        else:
            device.fill(self.stale, 0)
