"""PageRank by power iteration, as NetworkX defines it, with and without personalization and weights.

A vertex's share is the mass that it sends along each out-edge: rank / out-degree. By default each rank pulls: every row
sums the shares of its in-neighbours. With float32, they send only the change of their shares since the previous
iteration, cut to 16 bits, of which 64 fit into a cache line. The part that was cut off is added to the next change, so
the limit is the same, and is reached in as many iterations, unless dangling mass is dropped: the error of the first
shares then shrinks by alpha only in each iteration. To a tol of 1e-4, RMAT 18 took 9 iterations with 16 bits and 8 with
32, and a uniform graph 9 and 6, of the same duration on a CPU, which therefore takes 32 bits then. If the graph is
directed and does not store in-edges, a sort makes them for the call (`transpose`). If there is too little memory for
that, or for a few iterations only, ranks push: whole shares are added to a sum for every vertex of the graph, and the
sums of other ranges are sent to their owners. On a GPU, in-edges whose rows have gaps are copied for the call, unless
it has a start or few iterations (`compact_rows`).

If walks that follow no edge go to given vertices, and the iteration will converge, it begins with all mass on these
vertices: RMAT 16 takes 15 iterations then, and 31 from equal ranks. While the active set, the vertices that shares have
reached, is short (`ActiveSet`), only its rows are visited, on one rank, in graphs with in-edges. The others' ranks are
0, so the result is the same, bit for bit.

With weights, a vertex sends rank / the sum of its out-edges' weights, times the edge's weight. Then whole float64
shares are gathered, and graphs without in-edges push.

============================ =============================== ===================================================
`dtype` and `tol`            what pull gathers               the k-th iterate differs from the definition's by
============================ =============================== ===================================================
float32, 1e-7 and more       changes cut to 16 bits          up to 1%, and less as the changes shrink
float32, less than 1e-7      changes cut to 32 bits          float32's rounding
float64                      whole float64 shares            float64's rounding
============================ =============================== ===================================================

The sums of the shares that a vertex has received and sent are float64 in all three cases: changes are added over
thousands of iterations, and float32's rounding errors would add up. The mass that a step does not send (dangling
vertices and what was cut off) is spread over all vertices, evenly or as requested, so that ranks always sum to 1. Only
with dangling "drop" it is not spread: the part cut off is sent later, and the mass of dangling vertices is lost. Sums
to which many tiles add are in fixed point, so the result does not depend on timing.

The error bound: let H be the mass that the vertices have sent, where the mass not sent counts as one more vertex that
sends to all evenly. The next ranks are T(H), and T reduces L1 distances by the factor alpha. So the L1 distance of the
next ranks to the limit is at most ``alpha / (1 - alpha)`` times their L1 distance to H. The latter is at most their L1
change plus twice the part cut off in the previous step. This sum is compared with `tol`.

All ranks iterate by one program (`power_iteration.cuh`, `push_iteration.cuh`, `mgraph.exchange.world`): one launch for
up to 256 iterations. By pull, a rank writes the shares of its vertices to all ranks, range by range, and the ranks meet
once per iteration, and the own blocks once more where there are hubs. By push they meet twice, and the sums of others'
vertices are messages to their owners. While pull visits few vertices on one rank, an iteration is 3 launches and two
read-backs, of 48 and 24 bytes. Both ways give the same ranks, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.centrality.pagerank.active_set import ActiveSet, ActiveSetIteration
from mgraph.algorithms.centrality.pagerank.carry import Carry
from mgraph.algorithms.centrality.pagerank.decay import decayed
from mgraph.algorithms.centrality.pagerank.iteration import Iteration, common
from mgraph.algorithms.centrality.pagerank.power_iteration import (
    PowerIteration,
    PushIteration,
    power_iteration_kernels,
)
from mgraph.algorithms.centrality.pagerank.teleport import Base, distribution, scale, teleport, whole
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.transpose import CsrRows, sample_rows, transposed
from mgraph.algorithms.primitives.weight_validation import check_weights
from mgraph.device import Array
from mgraph.structures import Structure

__all__ = ["run", "warm"]

NARROW_TOL = 1e-7  #: shares are sent with 16 bits down to this tolerance; below it, iterates follow the definition
FAR = 8.0  #: an iteration converges, wherever it begins, if alpha**max_iter is this many times below `tol`
FEW = 8  #: up to this `max_iter` in-edges are not made: for 529M arcs that takes 59 ms and saves 9 ms per iteration


def warm(shard: Shard) -> None:
    """Compile PageRank's kernels for this shard, except for float64, push and few rows, which are rare."""
    rows = sample_rows(shard.device) if shard.in_edges is None else compact_rows_sample(shard, shard.in_edges)
    common(shard)
    for bits in (16, 32):  # first shares by default, and those of a given start
        power_iteration_kernels(shard, rows.view(), bits, 16, weight=False)
    ranks = shard.device.zeros(1, np.float32)  # CuPy compiles kernels for its own operations on a start, too
    ranks = shard.device.asarray(ranks, np.float64)
    ranks.sum(dtype=np.float64)
    ranks.min()


def run(
    shard: Shard, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100, start: Array = None,
    dtype: str = "float32", weight: bool = False, dangling: str = "personalization", dense: Array = None,
    chosen: np.ndarray | None = None, chosen_rows: np.ndarray | None = None, chosen_values: np.ndarray | None = None,
    several: int = 0, loose_dense: Array = None, loose: np.ndarray | None = None,
    loose_values: np.ndarray | None = None, nstart: Array = None, decay: float = 0.0, carry: Carry | None = None,
) -> Columns:  # fmt: skip
    """Return the PageRank of the own vertices, like ``networkx.pagerank``.

    Parameters
    ----------
    shard : Shard
    alpha : float
        The damping factor, 0 to 1.
    tol : float
        Stop once ``error`` is below it. The L1 distance of the ranks to the limit is then at most ``alpha / (1 - alpha)
        * tol`` plus rounding: 1e-7 for float32 (measured for `alpha` up to 0.999), 1e-12 for float64 (measured up to
        0.99; it grows with ``1 / (1 - alpha)``). 0 means exactly `max_iter` iterations. NetworkX multiplies its tol by
        the number of vertices; with 100,000 vertices it stops after 4 iterations, at a distance of 0.07. Below 1e-7, or
        with float64, the k-th iterate is the definition's up to 1e-4 relative.
    max_iter : int
        The largest number of iterations.
    start : float32 or float64[k] or [several, k], or None
        The first ranks of the own vertices, usually an earlier result; scaled to sum to 1 over the whole graph.
        Vertices past its end, which were added later, begin at ``1 / n_vertices``, and so do all if it is None.
    dtype : "float32" | "float64"
        The dtype of the ranks. With float64, whole float64 shares are gathered, which takes up to four times as long.
    weight : bool
        Send in proportion to the weights of edges. Whole float64 shares are gathered then.
    dangling : "uniform" | "personalization" | "drop"
        Who gets the mass of vertices without out-edges: all equally; like the teleport; nobody.
    dense : float64[hi - lo] or float64[several, hi - lo], optional
        The teleport vector of the own vertices, in any scale; equal values by default.
    chosen, chosen_rows, chosen_values : uint32[k], int64[k], float64[k], optional
        The same for few vertices: internal ids over the whole graph, their rows, and the numbers.
    several : int
        The number of rows of `dense` or `chosen`; 0 for a single row, with a single row of ranks.
    loose_dense : float64[hi - lo], optional
        Who gets the mass of vertices without out-edges, in any scale, instead of `dangling`.
    loose, loose_values : uint32[k], float64[k], optional
        The same for few vertices.
    nstart
        `start`, under the user's other name for it.
    carry : Carry, optional
        The state of an earlier iteration, by which pull begins instead of by `start`, which is given too then. It gets
        the state of this one, if that has converged and the shares are not whole.
    decay : float
        The age, in the unit of times, at which an edge weighs half as much as the latest of its source; 0 for none.
        Whole float64 shares are gathered then, too.

    Returns
    -------
    columns : dict
        "rank", dtype[hi - lo] on the shard's device. The ranks of all vertices of the graph sum to 1, unless dangling
        mass is dropped. With `several`, "ranks", dtype[several, hi - lo], instead.
    scalars : dict
        ``iterations``; ``error``, the last L1 change plus twice the part cut off of the shares before it;
        ``converged``, True if that is below `tol`. With `several`, the most, the largest, and whether all are. Ranks
        that have not converged after `max_iter` iterations are returned as well; NetworkX raises then.

    Raises
    ------
    InvalidOption
        `start` or a distribution has negative or infinite values or NaN, or sums to 0; an edge has a negative weight.
        Raised on every rank.
    CapacityError
        Too little memory. Pull needs 20 bytes per owned vertex (12 with float64), 8 bytes per row up to that of the
        last hub and 4 bytes (8 with a tol below 1e-7, 16 with float64) per vertex of the whole graph. Push needs
        12 bytes per owned vertex and 8 bytes (24 on several ranks; 8 more with float64) per vertex of the whole graph.
        Both need 8 bytes per owned vertex for a start, until the first iteration, 4 bytes per owned
        vertex for a float32 result, and 1 / 64 byte per edge for hubs' tasks. In-edges that the graph does not store
        need the memory of `transposed`.

    Notes
    -----
    O(n + m) per iteration; the module docstring lists launches and exchanges. The result does not depend on timing, bit
    for bit. Its last digits depend on the device and the number of ranks.
    """
    # No vertices.
    n, own = shard.n_vertices, shard.hi - shard.lo
    if n == 0:
        empty = {"ranks": shard.device.empty(0, dtype).reshape(several, 0)} if several else {}
        return empty or {"rank": shard.device.empty(0, dtype)}, {"iterations": 0, "error": 0.0, "converged": True}

    # Scale the starting vectors.
    name, start = ("start", start) if nstart is None else ("nstart", nstart)
    start = None if start is None else shard.device.asarray(start, np.float64)
    starts = {name: start} if start is None or start.ndim == 1 else {f"{name}[{i}]": row for i, row in enumerate(start)}
    carried = carry is not None and carry.sums is not None
    firsts = [] if carried else [(row, scale(shard, row, 1 / n, which)) for which, row in starts.items()]

    # Check weights, and choose the form of shares.
    if weight:
        check_weights(shard, "PageRank by weights")
    spread: str | Array = dangling
    if loose is not None or loose_dense is not None:
        spread = distribution(shard, whole(shard, loose_dense, loose, loose_values), "dangling")
    narrow = tol >= NARROW_TOL and (dangling != "drop" or shard.device.kind == "cuda")
    bits = 64 if weight or decay or dtype == "float64" else 16 if narrow else 32

    # Iterate for each row. A sure convergence lets it begin at the teleport vector.
    started = start is not None or carried
    make = _decayed_maker(shard, decay, weight) if decay else _maker(shard, bits, weight, max_iter, started)
    sure = not started and FAR * (alpha + (1 - alpha) / 128) ** max_iter < tol
    results, infos = [], []
    for row in range(max(several, 1)):
        to = teleport(shard, dense, chosen, chosen_rows, chosen_values, row, several)
        iteration = make(None, bits) if carried else None
        if carry is not None and isinstance(iteration, PowerIteration):
            iteration.go_on(carry.sums, carry.sent, carry.degrees, carry.handed, carry.scale)
        elif to is not None and sure:
            iteration = make(to if isinstance(spread, str) and spread != "uniform" else None, bits)
            iteration.begin(to, 1.0, 0.0, bits)
        else:
            firsts = firsts or [(start, scale(shard, start, 1 / n, name))]  # the state could not be used
            first, factor = firsts[row % len(firsts)]
            first_bits = bits if first is None else max(bits, 32)  # 16 would cost iterations
            iteration = make(None, first_bits)
            iteration.begin(first, factor, 1 / n, first_bits)
        infos.append(iteration.iterate(Base(n, alpha, to, spread), tol, max_iter))
        results.append(iteration.result(dtype))
        if carry is not None:
            carry.clear()
            if isinstance(iteration, PowerIteration) and bits < 64 and not several and infos[0]["converged"]:
                carry.keep(iteration, infos[0]["iterations"])

    # Join the rows.
    if not several:
        return {"rank": results[0]}, infos[0]
    ranks = shard.device.concatenate(results).reshape(several, own)
    most = {name: max(info[name] for info in infos) for name in ("iterations", "error")}
    return {"ranks": ranks}, {**most, "converged": all(info["converged"] for info in infos)}


def _decayed_maker(shard: Shard, decay: float, weight: bool) -> Callable[[Array, int], Iteration]:
    """Return a function as that of `_maker`, for edges whose weights decay."""
    rows = decayed(shard, decay, weight)
    if shard.in_edges is None:
        return lambda teleport, first_bits: PushIteration(shard, rows, 64, True)
    return lambda teleport, first_bits: PowerIteration(shard, rows, 64, True, first_bits)


def _maker(shard: Shard, bits: int, weight: bool, max_iter: int, started: bool) -> Callable[[Array, int], Iteration]:
    """Return a function that makes the state of an iteration.

    Its arguments are the vector where walks begin, or None, and the bits of the first shares. `started` is True if the
    iteration has a start, and so will be short.
    """
    kept = shard.in_edges
    rows = transposed(shard) if kept is None and max_iter > FEW and not weight else kept

    @cache
    def every_row() -> Structure | CsrRows:
        assert rows is not None
        return rows if kept is None or max_iter <= FEW or started else compact_rows(shard, kept, weight)

    def make(teleport: Array, first_bits: int) -> Iteration:
        if rows is None:
            return PushIteration(shard, shard.out_edges, bits, weight)
        if teleport is not None and kept is not None and shard.size == 1:
            reached = ActiveSet(shard, kept, teleport)
            if reached.few:
                return ActiveSetIteration(shard, kept, bits, weight, reached, every_row)
        return PowerIteration(shard, every_row(), bits, weight, first_bits)

    return make
