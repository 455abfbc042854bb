"""All that hangs below suspects without support, at once.

Chains on roads have thousands of vertices, and each step along one waits for memory. So every vertex of the graph is
hung on one that supports it, and pointers jump up to the roots of these trees, in a few passes over all vertices.
`CutOff` is tried first where there are few suspects, since chains may be short. Both read the graph's rows; those that
are read here are not counted as visited edges.

Whom each vertex hangs on is kept from call to call. It still hangs there if both lengths are what they were, and the
edge between them has not changed. So the next call reads few rows.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES
from mgraph.algorithms.paths.incremental_paths.counters import EDGES, SUSPECTS, TIED, TURNS
from mgraph.algorithms.paths.near_far.search import Search
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, View

__all__ = ["Below"]

JUMPS = 6  #: rounds of jumps between two looks whether all pointers have arrived


class Below:
    """What one rank, which is alone, keeps for that: 8 bytes a vertex, 12 with wide words, once it was needed.

    Parameters
    ----------
    search : Search
        The search whose lengths are repaired.
    kernels : Library
        Those of ``incremental_paths.cuh``.
    known : Struct
        The kernels' ``Known``.
    """

    def __init__(self, search: Search, kernels: Library, known: Struct) -> None:
        self.device, self.n, self.length = search.device, search.n, search.length
        self.kernels, self.known = kernels, known
        self.state, self.marked, self.listed = (known.values[name] for name in ("state", "cut", "listed"))
        self.hung: Array = None  # on whom each vertex hung in the last call
        self.then: Array = None  # the lengths in that call
        self.stale: Array = None  # a bitmap of the ends of edges that have changed since

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(array.nbytes) for array in (self.hung, self.then, self.stale) if array is not None)

    def cut(self, edges: View, changed: Struct, n: int) -> np.ndarray:
        """Cut all that hangs below suspects of `n` changed arcs without support; the words of the state.

        Where a vertex hangs on another of its own length, nothing is cut, and `TIED` says so. Then the suspects are as
        they were at first.
        """
        device, kernels, known, state, rows = self.device, self.kernels, self.known, self.state, self.n
        self._suspect_again(changed, n)
        self._hang(edges)
        while True:
            device.fill(state[TURNS:], 0)
            for round in range(JUMPS):
                kernels.Jump(rows, known=known, round=round)
            kernels.Below(rows, known=known, round=JUMPS - 1)
            words = Device.to_host(state).copy()
            if not words[TURNS + JUMPS - 1]:
                break
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
        self.kernels.Suspect(n, known=self.known, changed=changed, stale=self.stale)

    def _hang(self, edges: View) -> None:
        """Hang each vertex on one that supports it."""
        device, first = self.device, self.hung is None
        if first:
            self.hung, self.then = device.empty(self.n, np.uint32), self.length.copy()
        else:
            self.kernels.Moved(self.n, known=self.known, then=self.then, stale=self.stale)
        stale = None if first else self.stale
        self.kernels.Hang(-(-self.n // LANES), graph=edges, known=self.known, hung=self.hung, stale=stale)
        if first:
            self.stale = device.zeros(-(-self.n // 32), np.uint32)
        else:
            device.fill(self.stale, 0)
