"""Active set of a personalised PageRank: vertices with mass, kept as a list while it is short."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels
from mgraph.device import Array, Device
from mgraph.structures import Structure

__all__ = ["ActiveSet"]

FILE = "algorithms/centrality/pagerank/active_set.cuh"
SHARE = 16  #: the set is long with more than 1 / SHARE of the vertices, or of the edges


class ActiveSet:
    """Vertices whose ranks can differ from 0, if all walks begin at few vertices.

    For a graph on one rank.

    Parameters
    ----------
    shard : Shard
    incoming : Structure
        The in-edges.
    teleport : float64[n_vertices]
        Where walks begin: 0 for all but few vertices.

    Attributes
    ----------
    rows : uint32[n_vertices // SHARE]
        The first `n` of them are the active vertices, while they are `few`.
    few : bool
        True if a visit of only these rows is faster than of all: they are few, with few edges and no hub.

    Notes
    -----
    4 bytes per `SHARE` vertices, and one bit per vertex.
    """

    def __init__(self, shard: Shard, incoming: Structure, teleport: Array) -> None:
        n, device = shard.n_vertices, shard.device
        self.most_edges, self.kernels = incoming.num_edges // SHARE, kernels(shard, FILE, shard.out_edges.view())
        self.rows, self.state = device.empty(n // SHARE, np.uint32), device.zeros(3, np.int64)
        reached = {"bits": device.zeros(n // 32 + 1, np.uint32), "rows": self.rows, "most": n // SHARE}
        self.given = {"out": shard.out_edges.view(), "in": incoming.view(), "reached": {**reached, "state": self.state}}
        self.n, self.few = 0, True
        self.kernels.Begin(n, teleport=teleport, n=n, **self.given)
        self._read()

    def grow(self) -> None:
        """Add the out-neighbours of the vertices that joined last.

        One launch, one read-back.
        """
        if self.few:
            new = self.n - self.first
            self.kernels.Reach(-(-new // LANES), first=self.first, n=new, **self.given)
            self._read()

    def _read(self) -> None:
        self.first = self.n  # the vertices that joined last begin here
        self.n, edges, hubs = Device.to_host(self.state).tolist()
        self.few = self.n <= len(self.rows) and edges <= self.most_edges and not hubs
