"""HITS: the dominant right singular vector of the adjacency matrix A, found by restarted Lanczos iterations.

Authorities `a` are the dominant eigenvector of B = A^T A, and hubs are A a. A product with A is a sum over out-edges at
each vertex, one with A^T a sum over in-edges. An iteration makes an orthonormal basis of `STEPS` vectors ``v, B v, B^2
v, ...`` by the three-term recurrence, in which B is tridiagonal, and goes on from the best vector in it. That vector's
residual ``|B a - s a|`` is known from the recurrence. The basis is not orthogonalised again: rounding makes copies of
an eigenvalue that was found, and does no harm to the largest one.

All values are float64, and sums do not depend on timing.

================ =================================== ========== ======================================================
step             launches                            read-backs exchange among p ranks
================ =================================== ========== ======================================================
a product        1, 4 where there may be hubs        0          an allgather of 8 bytes a vertex
a step           two products, elementwise           2          two allreduces of a number
an iteration     up to `STEPS` steps                 2          the same
================ =================================== ========== ======================================================

References
----------
.. [1] J. Kleinberg, "Authoritative sources in a hyperlinked environment", J. ACM 46(5), 1999.
.. [2] B. N. Parlett, "The Symmetric Eigenvalue Problem", chapter 13, SIAM 1998.
"""

from __future__ import annotations

import math

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.replicated import share, sides
from mgraph.algorithms.primitives.transpose import Rows
from mgraph.algorithms.primitives.weight_validation import check_weights
from mgraph.device import Array
from mgraph.errors import InvalidOption
from mgraph.kernels import Library
from mgraph.structures import Structure

__all__ = ["STEPS", "run", "warm"]

STEPS = 20  #: vectors of a basis; 160 bytes a vertex
WHAT = "hubs and authorities by weights"


def _library(shard: Shard, rows: Structure | Rows, weight: bool) -> Library:
    return kernels(shard, "algorithms/centrality/hits/gather.cuh", rows.view(), BY_WEIGHT=int(weight))


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard without weights."""
    for rows in (shard.out_edges, shard.in_edges):
        if rows is not None:
            _library(shard, rows, False)


class _Matrix:
    """The edges of one direction as a matrix."""

    def __init__(self, shard: Shard, rows: Structure | Rows, weight: bool) -> None:
        self.shard, self.device, self.n = shard, shard.device, shard.hi - shard.lo
        self.kernels, self.view, self.room = _library(shard, rows, weight), rows.view(), task_room(rows)
        self.tasks, self.n_tasks = self.device.empty(self.room, np.uint64), self.device.zeros(1, np.int64)
        self.parts = self.device.empty(self.room, np.float64)
        self.everyone = self.device.empty(shard.n_vertices if shard.size > 1 else 0, np.float64)

    def product(self, own: Array) -> Array:
        """The matrix times a vector, of which this rank has its own part: float64[hi - lo]."""
        sums, values = self.device.empty(self.n, np.float64), share(self.shard, own, self.everyone)
        if self.room:
            self.device.fill(self.n_tasks, 0)
        tasks = {"tasks": self.tasks, "n_tasks": self.n_tasks}
        self.kernels.GatherRows(-(-self.n // LANES), graph=self.view, values=values, sums=sums, n=self.n, **tasks)
        self.kernels.GatherHubs(self.room, graph=self.view, values=values, parts=self.parts, **tasks)
        self.kernels.JoinGathered(self.room, graph=self.view, sums=sums, parts=self.parts, **tasks)
        return sums


def _dot(shard: Shard, a: Array, b: Array) -> float:
    """The sum of products over all ranks. A read-back and an allreduce."""
    with shard.device.taking(a.nbytes, "the products of two vectors"):
        mine = np.array([float((a * b).sum())])
    return float(shard.exchange.allreduce(mine)[0])


class _Lanczos:
    """The iteration on one rank, for the matrix `forth` and its transpose `back`.

    Attributes
    ----------
    vector : float64[hi - lo]
        The best vector so far, of unit length.
    error : float
        Its residual, relative to the eigenvalue.
    """

    def __init__(self, shard: Shard, forth: _Matrix, back: _Matrix, start: Array) -> None:
        self.shard, self.forth, self.back = shard, forth, back
        self.vector, self.error = start / math.sqrt(_dot(shard, start, start)), math.inf

    def iterate(self, tol: float) -> None:
        """One iteration; it ends early where the basis is complete."""
        shard, basis, diagonal, beside = self.shard, [self.vector], list[float](), list[float]()
        while True:
            last = basis[-1]
            more = self.back.product(self.forth.product(last))
            diagonal.append(_dot(shard, more, last))
            if not math.isfinite(diagonal[-1]):
                check_weights(shard, WHAT, finite=True)
                raise InvalidOption("a sum of weights is past the range of float64")
            more -= diagonal[-1] * last
            if beside:
                more -= beside[-1] * basis[-2]
            left = math.sqrt(_dot(shard, more, more))
            value, weights = _largest(diagonal, beside)
            self.error = left * abs(weights[-1]) / value if value > 0 else 0.0
            if len(basis) == STEPS or self.error <= tol or left <= 1e-14 * value:
                break
            more /= left
            basis.append(more)
            beside.append(left)
        found = basis[0] * weights[0]
        for vector, weight in zip(basis[1:], weights[1:], strict=True):
            found += weight * vector
        self.vector = found / math.sqrt(_dot(shard, found, found))


def _largest(diagonal: list[float], beside: list[float]) -> tuple[float, list[float]]:
    """The largest eigenvalue of a symmetric tridiagonal matrix, and its eigenvector, with a positive first entry."""
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    vector = vectors[:, -1]
    return float(values[-1]), (vector if vector[0] >= 0 else -vector).tolist()


def run(
    shard: Shard,
    tol: float = 1e-8,
    max_iter: int = 100,
    weight: bool = False,
    normalized: bool = True,
    start: Array = None,
    nstart: Array = None,
) -> Columns:
    """The hubs and the authorities of the own vertices.

    Parameters
    ----------
    shard : Shard
    tol : float
        The largest relative residual at which the iteration ends.
    max_iter : int
    weight : bool
        Whether edges count by their weights.
    normalized : bool
        Whether both columns sum to 1.
    start : array, shape (k,), optional
        The authorities to begin with, of the first k own vertices; the others begin with 1.
    nstart : optional
        The same, where the user gave it this name, for messages.

    Returns
    -------
    columns : dict
        "hubs" and "authorities", float64[hi - lo] on the shard's device.
    scalars : dict
        ``iterations``, ``error``, ``converged``.

    Raises
    ------
    InvalidOption
        `start` has negative or infinite values or NaN, or is 0 for all vertices; an edge has a negative or an infinite
        weight. Raised on every rank.
    CapacityError
        There is too little memory for `STEPS` + 3 vectors, or for the in-edges; see `transposed`.

    Notes
    -----
    O(n + m) a product, of which an iteration has 2 `STEPS`.
    """
    device, own = shard.device, shard.hi - shard.lo
    if shard.n_vertices == 0:
        none = device.empty(0, np.float64)
        return {"hubs": none, "authorities": none}, {"iterations": 0, "error": 0.0, "converged": True}
    if weight:
        check_weights(shard, WHAT)
    matrices = [_Matrix(shard, rows, weight) for rows in sides(shard, "HITS")]
    lanczos = _Lanczos(shard, matrices[0], matrices[-1], _first(shard, start, nstart))
    iterations, converged = 0, False
    while iterations < max_iter and not converged:
        iterations += 1
        lanczos.iterate(tol)
        converged = lanczos.error <= tol
    authorities = lanczos.vector
    device.xp.maximum(authorities, 0, out=authorities)  # rounding
    hubs, ones = matrices[0].product(authorities), device.full(own, 1, np.float64)
    # no authority points anywhere: there are no edges that count, or `start` is 0 where they lead
    if iterations and _dot(shard, hubs, ones) == 0 and _dot(shard, matrices[0].product(ones), ones) > 0:
        name = "start" if nstart is None else "nstart"
        raise InvalidOption(f"{name} is 0 for each vertex that an edge leads to; one of them must be above 0")
    if normalized:
        for column in (hubs, authorities):
            total = _dot(shard, column, ones)
            column += 0 if total > 0 else 1
            column /= total if total > 0 else shard.n_vertices
    info = {"iterations": iterations, "error": lanczos.error, "converged": converged}
    return {"hubs": hubs, "authorities": authorities}, info


def _first(shard: Shard, start: Array, nstart: Array) -> Array:
    """The vector to begin with; `InvalidOption` on every rank if what was given is none."""
    own, (name, first) = shard.hi - shard.lo, ("start", start) if nstart is None else ("nstart", nstart)
    vector = shard.device.full(own, 1, np.float64)
    if first is not None:
        given = shard.device.asarray(first, np.float64)[:own]
        vector[: len(given)] = given
    xp = shard.device.xp
    bad = not bool((xp.isfinite(vector) & (vector >= 0)).all())
    flags = shard.exchange.allreduce(np.array([bad, bool((vector > 0).any())], np.int64), "max")
    if flags[0] or not flags[1]:
        least, most = (float(vector.min()), float(vector.max())) if own else (np.inf, -np.inf)
        least, most = (
            float(shard.exchange.allreduce(np.array([x]), op)[0]) for x, op in ((least, "min"), (most, "max"))
        )
        raise InvalidOption(
            f"{name} must be finite and 0 or more for each vertex, and above 0 for one; "
            f"its values are from {least} to {most}"
        )
    return vector
