"""Sums of vectors that the ranks share by rows, and their scalar products: one pass over the vectors each.

Sums are in float64, in an order that does not depend on timing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants, load

__all__ = ["add", "add_squares", "distance", "dot", "unit", "vector_kernels"]

FILE = "algorithms/primitives/vectors.cuh"
CHUNK = constants(FILE, VALUE_BITS=64)["chunk"]
SMALL = 1e-200  #: sum of squares, some of which may have lost digits below the range of float64
Term = tuple[float, Array]


def vector_kernels(device: Device, bits: int = 64) -> Library:
    """Return the kernels for vectors of `bits` bits."""
    return load(device, FILE, VALUE_BITS=bits)


def add(shard: Shard, out: Array, *terms: Term, least: float = -math.inf) -> None:
    """Write the sum of up to three vectors times factors, or `least` where it is less, to `out`. A launch."""
    _add(shard, out, terms, least)


def add_squares(shard: Shard, out: Array, *terms: Term) -> float:
    """Write the sum as `add` does, and return the sum of its squares on all ranks. A read-back and an allreduce."""
    return _total(shard, _add(shard, out, terms))


def dot(shard: Shard, a: Array, b: Array) -> float:
    """Return the scalar product of two vectors. A read-back and an allreduce."""
    parts = _parts(shard, a)
    vector_kernels(shard.device, 8 * a.dtype.itemsize).Multiply(len(parts), x=a, y=b, n=len(a), parts=parts)
    return _total(shard, parts)


def distance(shard: Shard, a: Array, b: Array) -> float:
    """Return the sum of the absolute values of ``a - b``. A read-back and an allreduce."""
    parts = _parts(shard, a)
    vector_kernels(shard.device, 8 * a.dtype.itemsize).Compare(len(parts), x=a, y=b, n=len(a), parts=parts)
    return _total(shard, parts)


@np.errstate(over="ignore")
def unit(shard: Shard, x: Array, squares: float) -> Array:
    """Scale `x`, whose squares add up to `squares`, to a Euclidean norm of 1, in place, and return it; 0 stays."""
    if not SMALL < squares < math.inf:
        # Squares have left the range of float64: scale by the largest value first.
        largest = np.array([max(float(x.max()), -float(x.min())) if len(x) else 0.0])
        x /= float(shard.exchange.allreduce(largest, "max")[0]) or 1.0
        squares = dot(shard, x, x)
    add(shard, x, (1 / (math.sqrt(squares) or 1.0), x))
    return x


def _add(shard: Shard, out: Array, terms: Sequence[Term], least: float = -math.inf) -> Array:
    parts = _parts(shard, out)
    (a, b, c), (x, y, z) = zip(*terms, *[(0.0, None)] * (3 - len(terms)), strict=True)
    vector_kernels(shard.device, 8 * out.dtype.itemsize).Add(
        len(parts), x=x, y=y, z=z, a=a, b=b, c=c, least=least, out=out, n=len(out), parts=parts
    )
    return parts


def _parts(shard: Shard, vector: Array) -> Array:
    return shard.device.empty(-(-len(vector) // CHUNK), np.float64)


def _total(shard: Shard, parts: Array) -> float:
    return float(shard.exchange.allreduce(np.array([Device.to_host(parts).sum()]))[0])
