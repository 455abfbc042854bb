"""HITS: the dominant right singular vector of the adjacency matrix A, by restarted Lanczos iterations.

Authorities `a` are the dominant eigenvector of B = A^T A, and hubs are A a. A product with A is a sum over out-edges at
each vertex, a product with A^T a sum over in-edges. An iteration makes an orthonormal basis of `STEPS` vectors
``v, B v, B^2 v, ...`` by the three-term recurrence, in which B is tridiagonal, and goes on from the best vector in it.
The recurrence gives that vector's residual ``|B a - s a|``. The basis is not orthogonalised again. It stays orthogonal
until the residual is near rounding; the recurrence would then find the largest eigenvalue again, and mix the copies. So
a basis ends at a residual of `ROUNDING`, also where `tol` is smaller.

All values are float64, and sums do not depend on timing.

================ =================================== ========== ======================================================
step             launches                            read-backs exchange among p ranks
================ =================================== ========== ======================================================
a product        1, 3 where there may be hubs        0          an allgather of 8 bytes per vertex
a step           two products, 3                     2          two allreduces of a number
an iteration     up to `STEPS` steps, `STEPS` / 2    1          up to `STEPS` steps, an allreduce of a number
================ =================================== ========== ======================================================

References
----------
.. [1] J. Kleinberg, "Authoritative sources in a hyperlinked environment", J. ACM 46(5), 1999.
.. [2] B. N. Parlett, "The Symmetric Eigenvalue Problem", chapter 13, SIAM 1998.
"""

from __future__ import annotations

import math

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.primitives.gather.reduction import Reduction, reduction_kernels
from mgraph.algorithms.primitives.replicated import sides
from mgraph.algorithms.primitives.vectors import add, add_squares, dot, unit, vector_kernels
from mgraph.algorithms.primitives.weight_validation import check_weights
from mgraph.device import Array
from mgraph.errors import InvalidOption

__all__ = ["STEPS", "run", "warm"]

STEPS = 20  #: vectors of a basis: 160 bytes per vertex
ROUNDING = 1e-14  #: the relative residual from which on further vectors of a basis are not orthogonal to the best
WHAT = "hubs and authorities by weights"


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard, without weights."""
    for rows in (shard.out_edges, shard.in_edges):
        if rows is not None:
            reduction_kernels(shard, rows, "value")
    vector_kernels(shard.device)


class _Lanczos:
    """The iteration on a rank, for the matrix of the edges `forth` and its transpose `back`.

    Attributes
    ----------
    vector : float64[hi - lo]
        The best vector so far, of unit length.
    value : float
        Its eigenvalue.
    error : float
        Its residual, relative to the eigenvalue.
    iterations : int
    converged : bool
    """

    def __init__(self, shard: Shard, forth: Reduction, back: Reduction, start: Array) -> None:
        self.shard, self.forth, self.back = shard, forth, back
        self.vector, self.value, self.error = unit(shard, start, dot(shard, start, start)), 0.0, math.inf
        self.iterations, self.converged = 0, False

    def converge(self, tol: float, max_iter: int) -> _Lanczos:
        """Iterate until the residual is small."""
        while self.iterations < max_iter and not self.converged:
            self.iterations += 1
            self.iterate(tol)
            self.converged = self.error <= tol
        return self

    def iterate(self, tol: float) -> None:
        """Make an iteration. It ends early if the basis is complete."""
        shard, basis, diagonal, beside = self.shard, [self.vector], list[float](), list[float]()
        while True:
            # Multiply: w = B v_k, alpha_k = w . v_k.
            last = basis[-1]
            more = self.back.of(self.forth.of(last))
            diagonal.append(dot(shard, more, last))
            _check_finite(shard, diagonal[-1])

            # Orthogonalise: w = w - alpha_k v_k - beta_(k-1) v_(k-1), beta_k = |w|.
            before = [(-beside[-1], basis[-2])] if beside else []
            left = math.sqrt(add_squares(shard, more, (1.0, more), (-diagonal[-1], last), *before))

            # The residual of the best vector is beta_k times its last coefficient.
            self.value, weights = _largest(diagonal, beside)
            self.error = left * abs(weights[-1]) / self.value if self.value > 0 else 0.0
            if len(basis) == STEPS or self.error <= max(tol, ROUNDING):
                break

            # Extend the basis: v_(k+1) = w / beta_k.
            add(shard, more, (1 / left, more))
            basis.append(more)
            beside.append(left)

        # Combine the basis into the best vector.
        combined, terms = shard.device.empty(len(last), np.float64), list(zip(weights, basis, strict=True))
        sums = [terms[:3], *([(1.0, combined), *terms[at : at + 2]] for at in range(3, len(terms), 2))]
        for some in sums[:-1]:
            add(shard, combined, *some)
        squares = add_squares(shard, combined, *sums[-1])
        add(shard, combined, (1 / math.sqrt(squares), combined))
        self.vector = combined


def _check_finite(shard: Shard, total: float) -> None:
    """Raise `InvalidOption` on every rank if a sum of weights is not finite, naming an edge of infinite weight."""
    if not math.isfinite(total):
        check_weights(shard, WHAT, finite=True)
        raise InvalidOption("a sum of weights is past the range of float64")


def _largest(diagonal: list[float], beside: list[float]) -> tuple[float, list[float]]:
    """Return the largest eigenvalue of a symmetric tridiagonal matrix, and its eigenvector.

    The first entry is not negative.
    """
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
    """Return the hubs and the authorities of the own vertices.

    Parameters
    ----------
    shard : Shard
    tol : float
        The largest relative residual at which the iteration ends.
    max_iter : int
    weight : bool
        Count edges by their weights.
    normalized : bool
        Scale both columns to sum to 1.
    start : array, shape (hi - lo,), optional
        The first authorities of the own vertices; 1 by default.
    nstart : optional
        The same, under the user's other name for it, for messages.

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
        Too little memory for `STEPS` + 4 vectors, or for the in-edges of `transposed`.

    Notes
    -----
    O(n + m) per product; an iteration has 2 `STEPS` of them. Twice as many iterations if `start` has a 0.
    """
    # No vertices, or bad weights.
    device, own = shard.device, shard.hi - shard.lo
    if shard.n_vertices == 0:
        none = device.empty(0, np.float64)
        return {"hubs": none, "authorities": none}, {"iterations": 0, "error": 0.0, "converged": True}
    if weight:
        check_weights(shard, WHAT)

    # Iterate. From a start with zeros, the dominant vector may be out of reach.
    edge = "(value * weight)" if weight else "value"
    matrices = [Reduction(shard, rows, edge) for rows in sides(shard, "HITS")]
    first, positive = _first(shard, start, nstart)
    lanczos = _Lanczos(shard, matrices[0], matrices[-1], first).converge(tol, max_iter)
    if lanczos.value > 0 and not positive:
        other = _Lanczos(shard, matrices[0], matrices[-1], device.full(own, 1, np.float64)).converge(tol, max_iter)
        if other.value * (1 - max(tol, ROUNDING)) > lanczos.value:
            lanczos = other

    # Hubs are A times the authorities. Rounding, and few iterations, may leave authorities below 0.
    authorities = lanczos.vector
    add(shard, authorities, (1.0, authorities), least=0.0)
    unit(shard, authorities, dot(shard, authorities, authorities))
    hubs, ones = matrices[0].of(authorities), device.full(own, 1, np.float64)
    hub_sum = dot(shard, hubs, ones)
    _check_finite(shard, hub_sum)
    # Without a hub, no edge counts, or `start` is 0 at all destinations.
    if lanczos.iterations and hub_sum == 0 and dot(shard, matrices[0].of(ones), ones) > 0:
        name = "start" if nstart is None else "nstart"
        raise InvalidOption(f"{name} is 0 for each vertex that an edge leads to; one of them must be above 0")

    # Scale to sums of 1; equal values without edges.
    if normalized:
        for column in (hubs, authorities):
            total = dot(shard, column, ones)
            of = (1 / total, column) if total > 0 else (1 / shard.n_vertices, ones)
            add(shard, column, of)
    info = {"iterations": lanczos.iterations, "error": lanczos.error, "converged": lanczos.converged}
    return {"hubs": hubs, "authorities": authorities}, info


def _first(shard: Shard, start: Array, nstart: Array) -> tuple[Array, bool]:
    """Return the starting vector, and whether all its values are positive.

    Raises `InvalidOption` on every rank if it is invalid.
    """
    own, (name, first) = shard.hi - shard.lo, ("start", start) if nstart is None else ("nstart", nstart)
    vector = shard.device.full(own, 1, np.float64)  # the iteration changes it, so `first` is copied
    if first is None:
        return vector, True
    vector[:] = shard.device.asarray(first, np.float64)

    # All ranks must agree: values are finite and not negative, and one is positive.
    device = shard.device
    checks = (~(device.xp.isfinite(vector) & (vector >= 0)), vector > 0, vector == 0)
    flags = shard.exchange.allreduce(np.array([device.total(some) > 0 for some in checks], np.int64), "max")
    if flags[0] or not flags[1]:
        least, most = (float(vector.min()), float(vector.max())) if own else (np.inf, -np.inf)
        least, most = (
            float(shard.exchange.allreduce(np.array([x]), op)[0]) for x, op in ((least, "min"), (most, "max"))
        )
        raise InvalidOption(
            f"{name} must be finite and 0 or more for each vertex, and above 0 for one; "
            f"its values are from {least} to {most}"
        )
    return vector, not flags[2]
