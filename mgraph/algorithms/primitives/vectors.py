"""Sums of vectors that the ranks share by rows, and their scalar products: one pass over the vectors each.

Sums are in float64, in an order that does not depend on timing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants, load

__all__ = ["add", "add_squares", "distance", "dot", "vector_kernels"]

FILE = "algorithms/primitives/vectors.cuh"
_CONSTANTS = constants(FILE, VALUE_BITS=64)
CHUNK = _CONSTANTS["Combine::chunk"]
NOTHING, PRODUCTS, ABSOLUTE = range(len(_CONSTANTS.enums["Measure"]))
Term = tuple[float, Array]


def vector_kernels(device: Device, bits: int = 64) -> Library:
    """Return the kernels for vectors of `bits` bits."""
    return load(device, FILE, VALUE_BITS=bits)


def add(shard: Shard, out: Array, *terms: Term, least: float = -math.inf) -> None:
    """Write the sum of up to three vectors times factors, or `least` where it is less, to `out`. A launch."""
    _combine(shard, terms, out, least=least)


def add_squares(shard: Shard, out: Array, *terms: Term) -> float:
    """Write the sum as `add` does, and return the sum of its squares on all ranks. A read-back and an allreduce."""
    return _total(shard, _combine(shard, terms, out, PRODUCTS))


def dot(shard: Shard, a: Array, b: Array) -> float:
    """Return the scalar product of two vectors. A read-back and an allreduce."""
    return _total(shard, _combine(shard, [(1.0, a)], None, PRODUCTS, by=None if b is a else b))


def distance(shard: Shard, a: Array, b: Array | None = None) -> float:
    """Return the sum of the absolute values of ``a - b``, or of `a`. A read-back and an allreduce."""
    return _total(shard, _combine(shard, [(1.0, a)] if b is None else [(1.0, a), (-1.0, b)], None, ABSOLUTE))


def _combine(
    shard: Shard, terms: Sequence[Term], out: Array, measure: int = NOTHING, by: Array = None,
    least: float = -math.inf,
) -> Array:  # fmt: skip
    """Launch the kernel, and return the parts of its sum, float64[k]."""
    device, first, n = shard.device, terms[0][1], len(terms[0][1])
    (a, b, c), (x, y, z) = zip(*terms, *[(0.0, None)] * (3 - len(terms)), strict=True)
    parts = device.empty(-(-n // CHUNK) if measure else 0, np.float64)
    vector_kernels(device, 8 * first.dtype.itemsize).Combine(
        -(-n // CHUNK), of=Struct(first=x, second=y, third=z, a=a, b=b, c=c), least=least, out=out, measure=measure,
        by=by, n=n, parts=parts,
    )  # fmt: skip
    return parts


def _total(shard: Shard, parts: Array) -> float:
    return float(shard.exchange.allreduce(np.array([Device.to_host(parts).sum()]))[0])
