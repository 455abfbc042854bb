"""Invariants of hornet, asserted on the host by the numbers of its module, and its fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.kernels import constants

__all__ = ["Fill", "check_hornet", "measure_fill"]

Hornet = Any  # the class in structure.py, which imports this module

_SOURCE = constants("structures/hornet/arrays.cuh")
BARE, REST, CLASSES = _SOURCE["bare"], _SOURCE["rest"], _SOURCE["classes"]


@dataclass(frozen=True)
class Fill:
    """Fill of a hornet: fractions of memory that hold edges (Busato et al., Fig. 4).

    Attributes
    ----------
    blocks : float
        Edges relative to the slots of the rows' blocks; the rest is lost to powers of two.
    arrays : float
        Slots of the rows' blocks relative to those of arrays in use; the rest are free blocks.
    pool : float
        Arrays in use relative to all arrays; the rest are bare.
    memory : float
        CSR's bytes relative to all bytes. CSR has 8 per row and 4 per edge, 8 with weights.
    classes : dict of int to tuple
        By slots per block: blocks in use, free blocks, arrays.
    """

    blocks: float
    arrays: float
    pool: float
    memory: float
    classes: dict[int, tuple[int, int, int]]


def measure_fill(s: Hornet) -> Fill:
    """Measure the fill of a hornet. Fractions of nothing are 1."""
    kinds, frees = (s.device.to_host(a).astype(np.int64) for a in (s.pool.kinds, s.pool.frees))
    in_use, bits, classes = int((kinds != BARE).sum()), s.pool.bits, {}
    for k in np.unique(kinds[kinds < CLASSES]).tolist():
        arrays, free = int((kinds == k).sum()), int(frees[kinds == k].sum())
        classes[1 << k] = (arrays << max(bits - k, 0)) - free, free, arrays << max(k - bits, 0)
    csr = 8 * (s.n_rows + 1) + (8 if s.weighted else 4) * s.num_edges

    def share(part: int, whole: int) -> float:
        return part / whole if whole else 1.0

    return Fill(
        share(s.num_edges, s.used),
        share(s.used, in_use << bits),
        share(in_use, len(kinds)),
        share(csr, s.nbytes),
        classes,
    )


def check_hornet(s: Hornet) -> None:
    """Assert every invariant. O(n_rows + m), with a copy to the host."""
    words = s.device.to_host(s.rows)
    assert len(words) == s.n_rows, "1: words"
    degrees, rows = (words >> np.uint64(32)).astype(np.int64), np.flatnonzero(words)
    assert degrees.sum() == s.num_edges, "1: degrees"
    assert (degrees[rows] > 0).all(), "1: a row without edges has a block"
    first = (words[rows] & np.uint64(0xFFFFFFFF)).astype(np.int64) << s.pool.unit
    degrees = degrees[rows]
    classes = np.array([max((n - 1).bit_length(), s.pool.unit) for n in degrees.tolist()], np.int64)
    _check_blocks(s, first, classes)
    _check_edges(s, first, degrees)


def _check_blocks(s: Hornet, first: np.ndarray, classes: np.ndarray) -> None:
    # Blocks of rows lie in arrays of their class, large ones over several arrays.
    bits = s.pool.bits
    kinds, frees = (s.device.to_host(a).astype(np.int64) for a in (s.pool.kinds, s.pool.frees))
    arrays = first >> bits
    assert (arrays < len(kinds)).all(), "2: past the pool"
    assert (kinds[arrays] == classes).all(), "2: class of an array"
    assert (first & ((1 << np.minimum(classes, bits)) - 1) == 0).all(), "2: a block's place in its array"
    large = classes > bits
    spans = 1 << (classes[large] - bits)
    follow = np.repeat(arrays[large] + 1, spans - 1) + _count(spans - 1)
    assert (np.sort(follow) == np.flatnonzero(kinds == REST)).all(), "2: the rest of a large block"
    assert len(np.unique(first)) == len(first), "3: two rows share a block"

    # Leaf bits are 1 for free blocks, node bits for leaf words with a 1.
    small = kinds <= bits
    blocks = np.where(small, 1 << np.maximum(bits - kinds, 0), 0)
    leaves = s.device.to_host(s.pool.leaves).reshape(len(kinds), 1 << (bits - s.pool.unit - 5))
    bitmap = np.unpackbits(leaves.view(np.uint8), axis=1, bitorder="little")
    expected = np.arange(bitmap.shape[1]) < blocks[:, None]
    at = arrays[~large]
    expected[at, (first[~large] - (at << bits)) >> classes[~large]] = False
    assert (bitmap[small] == expected[small]).all(), "3: free blocks"
    nodes = s.device.to_host(s.pool.nodes).reshape(len(kinds), -(-leaves.shape[1] // 32))
    nodes = np.unpackbits(nodes.view(np.uint8), axis=1, bitorder="little")[:, : leaves.shape[1]]
    assert (nodes[small] == (leaves[small] > 0)).all(), "4: nodes"
    assert (frees == np.where(small, expected.sum(axis=1), 0)).all(), "4: free blocks of an array"
    assert (frees[small] < blocks[small]).all(), "5: an array without rows"
    assert ((kinds > bits) & (kinds < CLASSES)).sum() == large.sum(), "5: a large block without a row"
    assert s.used == (1 << classes).sum(), "5: slots of blocks"


def _count(times: np.ndarray) -> np.ndarray:
    """Concatenate 0 .. times[i] - 1 over i."""
    return np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)


def _check_edges(s: Hornet, first: np.ndarray, degrees: np.ndarray) -> None:
    at = np.repeat(first, degrees) + _count(degrees)
    dst = s.device.to_host(s.pool.slots)[at].astype(np.int64)
    row = np.repeat(np.arange(len(first)), degrees)
    assert ((dst[1:] > dst[:-1]) | (row[1:] > row[:-1])).all(), "6: a row does not ascend"
    assert not len(dst) or dst.max() < s.n_vertices, "6: dst out of range"
    assert s.weighted == (s.pool.weights is not None), "7: weights"
    if s.weighted:
        assert len(s.pool.weights) == len(s.pool.slots), "7: room for weights"
        assert not np.isnan(s.device.to_host(s.pool.weights)[at]).any(), "7: a weight is NaN"
