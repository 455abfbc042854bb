"""State of PageRank's pull iteration, carried from one read of a maintained result to the next.

After an iteration, each vertex has received the sum of the shares of its in-neighbours, up to rounding of float64. A
changed edge changes this sum at its end by one share, which is added or subtracted there. So the next iteration begins
with the exact sums, without a pass over all edges. Its error is that of the last read, plus that of the changed edges
at their ends. In undirected graphs most of the latter cancels out, since ranks are nearly proportional to degrees.

Vertices with changed edges send the change of their shares at once, unless they are hubs or have many edges together.
So after a batch of 1e-5 of the edges, RMAT needs one or two passes over all edges instead of three or four.

Rounding errors are below 1e-16 per read, relative to the sums. They add up, and stay below 1e-10 over a million reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import EdgeDelta, Renumbering, Shard, kernels
from mgraph.algorithms.centrality.pagerank.forward_push import Pushes
from mgraph.algorithms.centrality.pagerank.iteration import CELLS, read_tally
from mgraph.algorithms.centrality.pagerank.power_iteration import PowerIteration
from mgraph.device import Array
from mgraph.kernels import Struct

__all__ = ["Carry"]

ONE = 2.0**61  #: the number 1 in the fixed point of shares
WEIGHT_ONE = 2.0**30  #: the number 1 in the fixed point of the sum of shares along changed arcs
MOST_SHARES = 1 / 16  #: sum of shares along changed arcs from which the state is not carried on
FEW = 64  #: rows with at most 1 / FEW of the edges send at once


class Carry(Pushes):
    """State of a pull iteration on a rank. Empty until `keep`, and after `clear`.

    Attributes
    ----------
    sums, sent : float64[hi - lo], or None if empty
        The shares that each own vertex has received; and the share that it has sent along each out-edge.
    degrees : uint32[hi - lo]
    base : dict
        The fields of ``Base`` of the last step.
    handed, scale : float
        After `take`: the mass sent, and the factor of all shares by which it sums to 1 with that not sent.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device = shard, shard.device
        self.clear()

    def clear(self) -> None:
        """Forget the state."""
        self.sums: Array = None
        self.sent: Array = None
        self.degrees: Array = None
        self.base: dict[str, Any] = {}
        self.bits, self.alpha, self.handed, self.scale = 0, 0.0, 0.0, 1.0

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(0 if array is None else int(array.nbytes) for array in (self.sums, self.sent, self.degrees))

    def keep(self, iteration: PowerIteration, steps: int) -> None:
        """Keep the state of an iteration that has just made `steps` steps. One launch."""
        self.sums, self.sent, self.degrees = iteration.sums, iteration.sent, iteration.degrees
        self.base, self.alpha, self.bits = dict(iteration.base), iteration.alpha, iteration.bits
        self.kernels = kernels(
            self.shard, "algorithms/centrality/pagerank/carry.cuh", self.shard.out_edges.view(), SHARE_BITS=self.bits,
            BY_WEIGHT=0,
        )  # fmt: skip
        n = len(self.sent)
        self.kernels.Withdraw(n, n=n, news=iteration.last_shares(steps), sent=self.sent)

    def renumber(self, ids: Renumbering) -> None:
        """Adopt new internal ids. The removed vertices have no edges."""
        if self.sums is not None:
            self.sums, self.sent, self.degrees = (a[ids.rows] for a in (self.sums, self.sent, self.degrees))

    def take(self, changes: EdgeDelta, arcs: float, drop: bool) -> bool:
        """Take changed edges and new vertices in; all ranks have so many `arcs`.

        Returns False, and is empty then, if there is no state, or if the changes are too large; equal on every rank.
        With `drop` the mass of vertices without out-edges is lost, and shares are not scaled.
        """
        if self.sums is None:
            return False
        self._grow()
        rows, *mine = self._list(changes)
        weight, edges = self.shard.exchange.allreduce(np.array(mine, np.float64)).tolist()
        if weight > MOST_SHARES * WEIGHT_ONE:
            self._free()
            self.clear()
            return False

        # Send the old shares along new edges, and then the new shares of some rows.
        self.kernels.SendAlong(len(changes), flow=self.flow, changed=Struct(**changes.fields()), sent=self.sent)
        self._end_round()
        if FEW * edges <= arcs:
            self.kernels.NewShares(
                len(rows), flow=self.flow, rows=rows, count=len(rows), base=self.base, degrees=self.degrees,
                sums=self.sums, sent=self.sent,
            )  # fmt: skip
            self._hand_on(rows, len(rows))
            self._end_round()

        # Add what came in, and scale.
        tally = self.device.zeros(CELLS, np.uint64)
        self.kernels.TakeSums(
            len(self.sums), flow=self.flow, degrees=self.degrees, sums=self.sums, sent=self.sent, tally=tally
        )
        self._free()
        total, handed = self.shard.exchange.allreduce(np.array(read_tally(tally)[:2])).tolist()
        if not 0.5 < total < 2 and not drop:
            self.clear()
            return False
        self.scale = 1.0 if drop else 1 / total
        self.handed = handed * self.scale
        return True

    def _grow(self) -> None:
        """Add rows for new vertices, with shares of 0, and allocate the arrays of pushes."""
        # New vertices are past the end.
        device, rows, n = self.device, self.shard.hi - self.shard.lo, self.shard.n_vertices
        if more := rows - len(self.sums):
            self.sums, self.sent, self.degrees = (
                device.concatenate([a, device.zeros(more, a.dtype)]) for a in (self.sums, self.sent, self.degrees)
            )
            for name in ("teleport", "dangling"):
                if self.base[name] is not None:
                    self.base[name] = device.concatenate([self.base[name], device.zeros(more, np.float64)])
        # No residual is above its limit, so none is listed.
        self.state, self.list, self.edges, self.lost, self.one = (
            device.zeros(2 * 4, np.int64), device.empty(n, np.uint32), 0, 0.0, ONE
        )  # fmt: skip
        self.flow = Struct(
            x=None, residual=device.zeros(rows, np.int64), value=device.empty(rows, np.int64),
            sums=device.zeros(n, np.int64), marks=device.zeros(-(-n // 32) + 1, np.uint32), list=self.list, next=None,
            state=self.state, first=self.shard.lo, n=rows, most=(1 << 63) - 1, one=ONE, alpha=self.alpha,
        )  # fmt: skip

    def _free(self) -> None:
        """Free the arrays of pushes."""
        del self.flow, self.list, self.state

    def _list(self, changes: EdgeDelta) -> tuple[Array, int, int]:
        """Return the changed rows that are no hubs, the sum of shares along changed arcs, and the edges of the rows."""
        rows, counts = self.device.empty(len(changes), np.uint32), self.device.zeros(3, np.int64)
        self.kernels.ListChanged(
            len(changes), graph=self.shard.out_edges.view(), flow=self.flow, changed=Struct(**changes.fields()),
            sent=self.sent, degrees=self.degrees, rows=rows, counts=counts,
        )  # fmt: skip
        count, edges, weight = self.device.to_host(counts).tolist()
        return rows[:count], weight, edges
