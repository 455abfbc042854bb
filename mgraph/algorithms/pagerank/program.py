"""PageRank by power iteration, as NetworkX defines it, with and without personalization and weights.

A vertex's share is what it sends along each out-edge: rank / out-degree. By default each rank pulls: every row sums the
shares of its in-neighbours. With float32, they send only the change of their shares since the previous iteration, cut
to 16 bits, of which 64 fit into a cache line. The part that was cut off is added to the next change, so the limit is
the same, and is reached in as many iterations. If the graph is directed and does not store in-edges, they are made for
the call by a sort (see `transpose`). If there is too little memory for that, or for a few iterations only, ranks push:
whole shares are added to a sum for every vertex of the graph, and the sums of other ranges are sent to their owners.

With weights, a vertex sends rank / the sum of its out-edges' weights, times the edge's weight. Then whole float64
shares are gathered, and graphs without in-edges push.

============================ =============================== ===================================================
`dtype` and `tol`            what pull gathers               the k-th iterate differs from the definition's by
============================ =============================== ===================================================
float32, 1e-7 and more       changes cut to 16 bits          up to 1%, and less as the changes shrink
float32, less than 1e-7      changes cut to 32 bits          float32's rounding
float64                      whole float64 shares            float64's rounding
============================ =============================== ===================================================

The sums of what a vertex has received and sent are float64 in all three cases: changes are added over thousands of
iterations, and float32's rounding errors would add up. The mass that a step does not send (dangling vertices and what
was cut off) is spread over all vertices, evenly or as asked for, so that ranks always sum to 1. Only with dangling
"drop" it is not spread: what was cut off is sent later, and what dangling vertices have is lost. Sums to which many
tiles add are in fixed point, so the result does not depend on timing.

The error bound: let H be the mass that the vertices have sent, where the mass not sent counts as one more vertex that
sends to all evenly. The next ranks are T(H), and T reduces L1 distances by the factor alpha. So the L1 distance of the
next ranks to the limit is at most ``alpha / (1 - alpha)`` times their L1 distance to H. The latter is at most their L1
change plus twice what was cut off in the previous step. This sum is compared with `tol`.

An iteration on p ranks costs one read-back of 48 bytes, one allreduce of three numbers (a copy on one rank) and:

================= =============================================================== =====================================
way               launches                                                        exchange
================= =============================================================== =====================================
pull              2, 3 where there are hubs; p copies of shares where p > 1       allgather of 2, 4 or 8 bytes a vertex
push              2, 3 where there are hubs; p more where p > 1                   alltoallv of 8 bytes a vertex
================= =============================================================== =====================================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.transpose import Rows, some_rows, transposed
from mgraph.algorithms.weights.check import check_weights
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["SHARES", "run", "warm", "whole"]

NARROW_TOL = 1e-7  #: shares are sent with 16 bits down to this tolerance; below it, iterates follow the definition
SHARES = {16: np.uint16, 32: np.float32, 64: np.float64}  #: the dtype in which shares are sent, by their bits
TINY = float(np.finfo(np.float64).tiny)  #: the least sum of values whose reciprocal is finite
FEW = 8  #: up to this `max_iter` in-edges are not made: for 529M arcs that takes 59 ms and saves 9 ms an iteration
_RANKS = constants("algorithms/pagerank/ranks.cuh")
CELLS, LOW_BITS = _RANKS["tally_cells"], _RANKS["low_bits"]  #: the words of a tally; the bits of each low word
TALLY_ONE = 1 << _RANKS["tally_bits"] + LOW_BITS  # the number 1 in a tally's fixed point of two words


class _Base:
    """What each vertex gets in a step besides shares: by the teleport, and of the mass that was not sent.

    Parameters
    ----------
    n : int
        The number of vertices of the graph.
    alpha : float
    teleport : float64[hi - lo] or None
        The part of each own vertex, of 1 over the graph; None for equal parts.
    dangling : "uniform" | "personalization" | "drop" or float64[hi - lo]
        Who gets the mass that was not sent.
    """

    def __init__(self, n: int, alpha: float, teleport: Array, dangling: str | Array) -> None:
        self.n, self.alpha, self.teleport, self.dangling = n, alpha, teleport, dangling

    def at(self, handed: float) -> dict[str, Any]:
        """The fields of `Base` in a step before which the mass `handed` was sent."""
        fresh, loose, teleport, dangling = 1 - self.alpha, self.alpha * (1 - handed), self.teleport, self.dangling
        named = isinstance(dangling, str)
        if teleport is None and named and dangling != "drop":
            return {**NO_BASE, "even": (1 - self.alpha * handed) / self.n}
        even = fresh * (teleport is None) + loose * (named and dangling == "uniform")
        teleporting = fresh + loose * (named and dangling == "personalization")
        parts = {"teleport": teleport, "teleporting": teleporting if teleport is not None else 0.0}
        return {"even": even / self.n, **parts, "dangling": None if named else dangling, "loose": loose}


NO_BASE: dict[str, Any] = {"even": 0.0, "teleport": None, "teleporting": 0.0, "dangling": None, "loose": 0.0}


class _Iteration:
    """The state of the power iteration on one rank; its subclasses pull or push.

    Attributes
    ----------
    sums : float64[hi - lo]
        The ranks are ``base + alpha * sums``. At first the sums are the first ranks; later see the subclasses.
    degrees : uint32[hi - lo], or float64[hi - lo] with weights
        Out-degrees, or the sums of the weights of out-edges.
    tally : list of two uint64[CELLS]
        Sums over the own vertices in fixed point, for even and odd iterations: the difference between the ranks and
        the mass sent before, the mass sent, and the mass that was cut off.
    """

    file = ""

    def __init__(self, shard: Shard, edges: Structure | Rows, bits: int, weight: bool = False) -> None:
        self.shard, self.device, self.n, self.bits = shard, shard.device, shard.hi - shard.lo, bits
        self.weight = int(weight)
        self.edges, self.view = edges, edges.view()
        self.kernels = self._library(bits)
        self.degrees = self._out_weights() if weight else self.device.empty(self.n, np.uint32)
        self.sums, self.base, self.alpha = self.device.empty(self.n, np.float64), NO_BASE, 1.0
        cells = self.device.zeros(2 * CELLS, np.uint64)
        self.tally = [cells[:CELLS], cells[CELLS:]]
        self.tasks, self.n_tasks, self.hub_rows = self._list_hubs()

    def _library(self, bits: int) -> Library:
        return kernels(self.shard, self.file, self.view, BY_WEIGHT=self.weight)

    def _out_weights(self) -> Array:
        """The sums of the weights of each own vertex's out-edges; one launch, a read-back and an allreduce."""
        sums = self.device.empty(self.n, np.float64)
        self._common().OutWeights(self.n, graph=self.shard.out_edges.view(), n=self.n, sums=sums)
        bad = np.array([not bool(self.device.xp.isfinite(sums).all())], np.int64)
        if int(self.shard.exchange.allreduce(bad, "max")[0]):
            raise InvalidOption("an edge has an infinite weight; PageRank by weights needs finite ones")
        return sums

    def _list_hubs(self) -> tuple[Array, int, int]:
        room = task_room(self.edges)
        tasks, state = self.device.empty(room, np.uint64), self.device.zeros(2, np.int64)
        if room == 0:
            return tasks, 0, 0
        self.kernels.ListHubs(self.n, graph=self.view, n=self.n, tasks=tasks, state=state)
        n_tasks, hub_rows = Device.to_host(state).tolist()
        return tasks[:n_tasks], n_tasks, hub_rows

    def begin(self, start: Array, scale: float, even: float) -> None:
        """Compute degrees and first ranks. One launch."""
        view = self.shard.out_edges.view()
        self._common().StartRanks(
            self.n, graph=view, n=self.n, start=start, given=0 if start is None else min(len(start), self.n),
            scale=scale, even=even, degrees=self.degrees, ranks=self.sums, tally=self.tally[0],
        )  # fmt: skip

    def _common(self) -> Library:
        return _common(self.shard, self.weight)

    def read(self, step: int) -> tuple[float, float, float]:
        """The tally of iteration `step`, summed over all ranks: change, mass sent, mass cut off.

        One read-back, one allreduce.
        """
        words = Device.to_host(self.tally[step & 1]).tolist()
        mine = [((high << LOW_BITS) + low) / TALLY_ONE for high, low in zip(words[::2], words[1::2], strict=True)]
        change, handed, kept = self.shard.exchange.allreduce(np.array(mine)).tolist()
        return change, handed, kept

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        """Compute the ranks of iteration `step`: `base` plus `alpha` times the shares received."""
        raise NotImplementedError

    def result(self, dtype: str) -> Array:
        """The ranks: dtype[hi - lo]. One launch."""
        wide = dtype == "float64"
        given = self.sums if wide else self.device.empty(self.n, np.float32)
        self._common().GiveRanks(
            self.n, sums=self.sums, n=self.n, base=self.base, alpha=self.alpha,
            single_ranks=None if wide else given, double_ranks=given if wide else None,
        )  # fmt: skip
        return given


class _Pull(_Iteration):
    """The pull iteration: rows are destinations, with their in-edges.

    Attributes
    ----------
    sums : float64[hi - lo]
        From the first iteration on, the shares that each vertex has received in total.
    handed : float64[hi - lo]
        The share that each vertex has sent in total to each of its out-neighbours.
    news : SHARES[bits][hi - lo]
        The share, or the change of it, that was sent last; `handed` itself if shares are whole.
    """

    file = "algorithms/pagerank/pull.cuh"

    def __init__(self, shard: Shard, edges: Structure | Rows, bits: int, weight: bool = False) -> None:
        super().__init__(shard, edges, bits, weight)
        self.handed = self.device.empty(self.n, np.float64)
        self.hub_sums = self.device.zeros(self.hub_rows, np.uint64)  # rows after that of the last hub have none
        if edges.sorted_rows and self.n_tasks:
            self._sort_tasks()

    def _library(self, bits: int) -> Library:
        return kernels(self.shard, self.file, self.view, SHARE_BITS=bits, BY_WEIGHT=self.weight)

    def _sort_tasks(self) -> None:
        """Sort the tasks by their first sources, so that tiles that run at the same time read the same cache lines.

        Done once; takes 0.3 ms for 600k tasks.
        """
        ids = self.device.empty(self.n_tasks, np.uint32)
        self.kernels.FirstIds(self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, ids=ids)
        with self.device.taking(16 * self.n_tasks, f"the order of {self.n_tasks} tasks"):
            places = self.device.xp.argsort(ids, kind="stable")
        self.tasks = self.device.gather(self.tasks, places)

    def begin(self, start: Array, scale: float, even: float) -> None:
        """Compute degrees, first ranks and first shares.

        The shares of a given start are sent with 32 bits at least: cutting off more would cost iterations.
        """
        super().begin(start, scale, even)
        self.tally.reverse()  # so that `FirstShares` clears the tally that `StartRanks` wrote
        first = self.bits if start is None else max(self.bits, 32)
        self._take(first)
        self._library(first).FirstShares(
            self.n, n=self.n, ranks=self.sums, shares=self._shares(), tally=self.tally[0], spent=self.tally[1]
        )

    def _take(self, bits: int) -> None:
        """Allocate the arrays for shares of `bits` bits."""
        whole, everyone = bits == 64, self.shard.n_vertices if self.shard.size > 1 else 0
        self.news = self.handed if whole else self.device.empty(self.n, SHARES[bits])
        self.everyones = self.device.empty(everyone, SHARES[bits])
        self.gathering = self._library(bits)

    def _shares(self) -> dict[str, Array]:
        return {"degrees": self.degrees, "handed": self.handed, "news": self.news}

    def _gathered(self) -> Array:
        if self.shard.size == 1:
            return self.news
        for r, theirs in enumerate(self.shard.exchange.allgather(self.news)):
            first, end = self.shard.partition.range(r)
            self.everyones[first:end] = theirs
        return self.everyones

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        if step == 1:
            self.device.fill(self.sums, 0)
        news, sums = self._gathered(), self.sums
        self.gathering.PullHubs(
            self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, news=news, sums=self.hub_sums
        )
        self.gathering.PullRows(-(-self.n // LANES), graph=self.view, n=self.n, news=news, sums=sums)
        if self.gathering is not self.kernels:
            self._take(self.bits)
        self.base, self.alpha = base, alpha
        self.kernels.FinishPull(
            self.n, sums=sums, hub_sums=self.hub_sums, hub_rows=self.hub_rows, n=self.n, base=base, alpha=alpha,
            shares=self._shares(), tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


class _Push(_Iteration):
    """The push iteration: rows are sources, with their out-edges. Shares are whole, and `sums` are the ranks.

    Attributes
    ----------
    words : list of uint64[n_vertices]
        The sum of the shares pushed to every vertex, in fixed point: one word, or two if shares have 64 bits.
    """

    file = "algorithms/pagerank/push.cuh"

    def __init__(self, shard: Shard, edges: Structure | Rows, bits: int, weight: bool = False) -> None:
        super().__init__(shard, edges, bits, weight)
        self.words = [self.device.zeros(shard.n_vertices, np.uint64) for _ in range(2 if bits == 64 else 1)]
        self.leaving = self.device.empty(shard.n_vertices if shard.size > 1 else 0, np.float64)

    def _pushed(self, first: int, end: int) -> dict[str, Array]:
        parts = [word[first:end] for word in self.words]
        return {"high": parts[0], "low": parts[1] if len(parts) > 1 else None}

    def _to_owners(self) -> None:
        shard = self.shard
        n, first, end = shard.n_vertices, shard.lo, shard.hi
        self.kernels.DrainSums(n - self.n, sums=self._pushed(0, n), n=n, first=first, end=end, out=self.leaving)
        ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
        for r, part in enumerate(shard.exchange.alltoallv([self.leaving[first:end] for first, end in ranges])):
            if r != shard.rank:
                self.kernels.AddSums(self.n, part=part, n=self.n, sums=self._pushed(shard.lo, shard.hi))

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        common = {"graph": self.view, "degrees": self.degrees, "ranks": self.sums}
        common["sums"] = self._pushed(0, self.shard.n_vertices)
        self.kernels.PushHubs(self.n_tasks, tasks=self.tasks, n=self.n_tasks, **common)
        self.kernels.PushRanks(-(-self.n // LANES), n=self.n, **common)
        if self.shard.size > 1:
            self._to_owners()
        self.kernels.FinishRanks(
            self.n, sums=self._pushed(self.shard.lo, self.shard.hi), n=self.n, degrees=self.degrees, base=base,
            alpha=alpha, ranks=self.sums, tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


def _common(shard: Shard, weight: int = 0) -> Library:
    return kernels(shard, "algorithms/pagerank/ranks.cuh", shard.out_edges.view(), BY_WEIGHT=weight)


def _scale(shard: Shard, start: Array, even: float, name: str = "start") -> float:
    """The factor by which numbers are multiplied so that they sum to 1; up to two read-backs, one allreduce.

    `InvalidOption`, naming `name` and the least value, on every rank if it is not possible.
    """
    total, bad, least = even * (shard.hi - shard.lo), 0.0, math.inf
    if start is not None and len(start):
        start = start[: shard.hi - shard.lo]
        with np.errstate(over="ignore"):  # a sum that is not finite is refused below
            total = float(start.sum(dtype=np.float64)) + even * (shard.hi - shard.lo - len(start))
        least = float(start.min())
        bad = float(not least >= 0)  # NaN too
    total, bad = shard.exchange.allreduce(np.array([total, bad])).tolist()
    if bad or not TINY <= total < math.inf:
        least = float(shard.exchange.allreduce(np.array([least]), "min")[0])
        raise InvalidOption(
            f"{name} sums to {total}, and its least value is {least}; values must be finite and 0 or more, and their "
            f"sum at least {TINY}"
        )
    return 1 / total


def warm(shard: Shard) -> None:
    """Compile what PageRank runs on this shard, except for float64 and push, which few calls need."""
    rows = shard.in_edges or some_rows(shard.device)
    _common(shard)
    for bits in (16, 32):  # shares by default, and those of a given start
        kernels(shard, "algorithms/pagerank/pull.cuh", rows.view(), SHARE_BITS=bits, BY_WEIGHT=0)
    ranks = shard.device.zeros(1, np.float32)  # CuPy compiles kernels for its own operations on a start, too
    ranks = shard.device.asarray(ranks, np.float64)
    ranks.sum(dtype=np.float64)
    ranks.min()


def run(
    shard: Shard, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100, start: Array = None,
    dtype: str = "float32", weight: bool = False, dangling: str = "personalization", dense: Array = None,
    chosen: np.ndarray | None = None, chosen_rows: np.ndarray | None = None, chosen_values: np.ndarray | None = None,
    several: int = 0, loose_dense: Array = None, loose: np.ndarray | None = None,
    loose_values: np.ndarray | None = None,
) -> Columns:  # fmt: skip
    """The PageRank of the own vertices, as ``networkx.pagerank``.

    Parameters
    ----------
    shard : Shard
    alpha : float
        The damping factor, 0 to 1.
    tol : float
        Stop once ``error`` is below it. The L1 distance of the ranks to the limit is then at most
        ``alpha / (1 - alpha) * tol`` plus rounding: 1e-7 for float32 (measured for `alpha` up to 0.999), 1e-12 for
        float64 (measured up to 0.99; it grows with ``1 / (1 - alpha)``). 0 means exactly `max_iter` iterations.
        NetworkX multiplies its tol by the number of vertices; with 100,000 vertices it stops after 4 iterations, at a
        distance of 0.07. Below 1e-7, or with float64, the k-th iterate is the definition's up to 1e-4 relative.
    max_iter : int
        The largest number of iterations.
    start : float32 or float64[k], or None
        The ranks of the own vertices to begin with, usually an earlier result; scaled to sum to 1 over the whole graph.
        Vertices past its end, which were added later, begin at ``1 / n_vertices``, as all do if it is None.
    dtype : "float32" | "float64"
        The dtype of the ranks. With float64, whole float64 shares are gathered, which takes up to four times as long.
    weight : bool
        Whether vertices send in proportion to the weights of their edges. Whole float64 shares are gathered then.
    dangling : "uniform" | "personalization" | "drop"
        Who gets the mass of vertices without out-edges: all alike; as the teleport goes; nobody.
    dense : float64[hi - lo] or float64[several, hi - lo], optional
        To which of the own vertices a walk is teleported, and in which proportion; equally if nothing is given.
    chosen, chosen_rows, chosen_values : uint32[k], int64[k], float64[k], optional
        The same for few vertices: internal ids over the whole graph, the rows that they belong to, and the numbers.
    several : int
        The number of rows of `dense` or `chosen`; 0 for one, and one row of ranks.
    loose_dense : float64[hi - lo], optional
        Who gets the mass of vertices without out-edges, and in which proportion, instead of `dangling`.
    loose, loose_values : uint32[k], float64[k], optional
        The same for few vertices.

    Returns
    -------
    columns : dict
        "rank", dtype[hi - lo] on the shard's device. The ranks of all vertices of the graph sum to 1, unless dangling
        mass is dropped. With `several`, "ranks", dtype[several, hi - lo], instead.
    scalars : dict
        ``iterations``; ``error``, the last L1 change plus twice what was cut off of the shares before it;
        ``converged``, whether that is below `tol`. With `several`, the most, the largest, and whether all are. Ranks
        that have not converged after `max_iter` iterations are returned as well; NetworkX raises then.

    Raises
    ------
    InvalidOption
        `start` or a distribution has negative or infinite values or NaN, or sums to 0; an edge has a negative weight.
        Raised on every rank.
    CapacityError
        There is too little memory. Pull needs 22 bytes an owned vertex (24 with a tol below 1e-7, 20 with float64), 8
        bytes a row up to that of the last hub and, on several ranks, 2 bytes (4, 8) a vertex of the whole graph. Push
        needs 12 bytes an owned vertex and 8 bytes (16 on several ranks; 8 more with float64) a vertex of the whole
        graph. Both need 8 bytes an owned vertex for a start, until the first iteration, 4 bytes an owned vertex for a
        float32 result, and 1 / 64 byte an edge for hubs' tasks. In-edges that the graph does not store need what
        `transposed` says.

    Notes
    -----
    O(n + m) an iteration; the module docstring lists launches and exchanges. The result does not depend on timing, bit
    for bit. Its last digits depend on the device and the number of ranks.
    """
    n, own = shard.n_vertices, shard.hi - shard.lo
    if n == 0:
        empty = {"ranks": shard.device.empty(0, dtype).reshape(several, 0)} if several else {}
        return empty or {"rank": shard.device.empty(0, dtype)}, {"iterations": 0, "error": 0.0, "converged": True}
    start = None if start is None else shard.device.asarray(start, np.float64)
    scale = _scale(shard, start, 1 / n)
    if weight:
        check_weights(shard, "PageRank by weights")
    spread: str | Array = dangling
    if loose is not None or loose_dense is not None:
        spread = _distribution(shard, whole(shard, loose_dense, loose, loose_values), "dangling")
    incoming: Structure | Rows | None = shard.in_edges
    if incoming is None and max_iter > FEW and not weight:
        incoming = transposed(shard)
    bits = 64 if weight or dtype == "float64" else 16 if tol >= NARROW_TOL else 32
    results, infos = [], []
    for row in range(max(several, 1)):
        teleport = None
        if dense is not None or chosen is not None:
            here = None if chosen is None else chosen_rows == row
            picked = (None, None) if here is None else (chosen[here], chosen_values[here])  # type: ignore[index]
            spots = whole(shard, dense[row] if several and dense is not None else dense, *picked)
            teleport = _distribution(shard, spots, f"personalization[{row}]" if several else "personalization")
        way = _Push if incoming is None else _Pull
        iteration = way(shard, shard.out_edges if incoming is None else incoming, bits, weight)
        iteration.begin(start, scale, 1 / n)
        infos.append(_iterate(iteration, _Base(n, alpha, teleport, spread), tol, max_iter))
        results.append(iteration.result(dtype))
    if not several:
        return {"rank": results[0]}, infos[0]
    ranks = shard.device.concatenate(results).reshape(several, own)
    most = {name: max(info[name] for info in infos) for name in ("iterations", "error")}
    return {"ranks": ranks}, {**most, "converged": all(info["converged"] for info in infos)}


def whole(shard: Shard, dense: Array, chosen: np.ndarray | None, values: np.ndarray | None) -> Array:
    """A number for each own vertex: float64[hi - lo], given densely, or for few vertices of the graph."""
    if chosen is None or values is None:
        return shard.device.asarray(dense, np.float64)
    own = (chosen >= shard.lo) & (chosen < shard.hi)
    whole = shard.device.zeros(shard.hi - shard.lo, np.float64)
    whole[shard.device.asarray(chosen[own].astype(np.int64) - shard.lo)] = shard.device.asarray(values[own])
    return whole


def _distribution(shard: Shard, whole: Array, name: str) -> Array:
    """`whole`, scaled so that it sums to 1 over the graph."""
    return whole * _scale(shard, whole, 0.0, name)


def _iterate(iteration: _Iteration, base: _Base, tol: float, max_iter: int) -> dict[str, Any]:
    """Iterate until the error is below `tol`, or `max_iter` times; what the result says of it."""
    _, handed, kept = iteration.read(0)
    error, steps = math.inf, 0
    while steps < max_iter and not error < tol:
        steps += 1
        iteration.step(steps, base.at(handed), base.alpha)
        before = kept
        change, handed, kept = iteration.read(steps)
        error = change + before
    return {"iterations": steps, "error": error, "converged": error < tol}
