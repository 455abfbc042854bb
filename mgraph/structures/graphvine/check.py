"""Invariants of graphvine, numbered as in its module, asserted on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.kernels import constants

__all__ = ["check_graphvine"]

GraphVine = Any  # the class in structure.py, which imports this module

#: tombstone in the slot of a deleted edge
NOBODY = np.uint32(constants("structures/graphvine/view.cuh")["nobody"])


def check_graphvine(s: GraphVine) -> None:
    """Assert every invariant. O(n_rows + m), with a copy to the host."""
    # Sentinels and positions.
    host = s.device.to_host
    sentinels, slots = host(s.sentinels), host(s.pool.slots)
    degrees, roots = (sentinels >> np.uint64(32)).astype(np.int64), (sentinels & np.uint64(0xFFFFFFFF)).astype(np.int64)
    extents = degrees if s.extents is None else host(s.extents).astype(np.int64)
    assert len(sentinels) == 1 << max(s.n_rows - 1, 0).bit_length(), "1: length of the dictionary"
    assert not sentinels[s.n_rows :].any(), "1: a row that is not there"
    assert not extents[s.n_rows :].any(), "1: positions of a row that is not there"
    assert degrees.sum() == s.num_edges, "1: degrees"
    rows = np.flatnonzero(extents)
    assert s.filled == len(rows) == np.count_nonzero(degrees), "6 or 7: rows with edges"

    # Blocks, directories and rings do not overlap.
    block, quantum = 1 << s.pool.shift, 1 << (s.pool.shift - 2)
    blocks = -(-extents[rows] // block)
    sizes = np.full(len(rows), 4)
    if s.fine:
        sizes = np.where(extents[rows] > block // 2, 4, np.where(extents[rows] > block // 4, 2, 1))
    assert s.live == (blocks * sizes).sum(), "7: quanta of blocks"
    directories = _directories(s, slots, roots[rows], blocks)
    row, first = _blocks(s, slots, roots[rows], blocks)
    pieces = [(first, sizes[row]), (roots[rows][directories > 0], directories[directories > 0]), *_waiting(s)]
    _check_disjoint(s, *(np.concatenate(column) for column in zip(*pieces, strict=True)))

    # Edges of all blocks.
    number = np.arange(len(first)) - np.repeat(np.cumsum(blocks) - blocks, blocks)  # each block's number in its row
    live = np.minimum(extents[rows][row] - number * block, block)
    assert (live > 0).all(), "3: an empty block"
    at = np.repeat(first * quantum, live) + np.arange(live.sum()) - np.repeat(np.cumsum(live) - live, live)
    _check_edges(s, slots[at], np.repeat(rows[row], live), degrees)
    if s.weighted:
        assert len(s.pool.weights) == len(slots), "8: room for weights"
        assert not np.isnan(host(s.pool.weights)[at[slots[at] != NOBODY]]).any(), "8: a weight is NaN"


def _directories(s: GraphVine, slots: np.ndarray, roots: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return the quanta of each row's directory, 0 for none."""
    sizes = np.zeros(len(roots), np.int64)
    if s.pool.children is None:
        many = blocks > 1
        quantum = 1 << (s.pool.shift - 2)
        room = slots[roots[many] * quantum].astype(np.int64)
        assert (room >= blocks[many]).all(), "4: room of a directory"
        assert ((room + 1) % quantum == 0).all(), "4: size of a directory"
        sizes[many] = (room + 1) // quantum
    return sizes


def _blocks(s: GraphVine, slots: np.ndarray, roots: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each block's row (an index of `roots`) and first quantum."""
    row = np.repeat(np.arange(len(roots)), blocks)
    number = np.arange(len(row)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    first = roots[row]
    many = blocks[row] > 1
    if s.pool.children is None:
        first[many] = slots[(first[many] << (s.pool.shift - 2)) + 1 + number[many]]
        return row, first

    # A tree: the bits of a block's number + 1 lead down to it.
    children = s.device.to_host(s.pool.children)
    for bit in range(int(number.max(initial=0) + 1).bit_length() - 1, -1, -1):
        down = (number + 1) >> (bit + 1) > 0
        first[down] = children[(first[down] >> 2) * 2 + ((number[down] + 1) >> bit & 1)]
    return row, first


def _waiting(s: GraphVine) -> list[tuple[Any, Any]]:
    """Return the first quanta and sizes of the pieces in the rings."""
    rings, length = s.device.to_host(s.pool.rings), s.pool.ring
    pieces = []
    for c, (head, waiting) in enumerate(zip(s.queues.head, s.queues.waiting, strict=True)):
        assert 0 <= waiting <= length, "2: length of a ring"
        at = (head + np.arange(waiting)) % max(length, 1)
        pieces.append((rings[c * length + at].astype(np.int64), np.full(waiting, 1 << c)))
    return pieces


def _check_disjoint(s: GraphVine, first: np.ndarray, sizes: np.ndarray) -> None:
    order = np.argsort(first)
    first, ends = first[order], (first + sizes)[order]
    assert (first[1:] >= ends[:-1]).all(), "2: pieces overlap"
    assert not len(first) or ends[-1] <= s.queues.fresh, "2: a piece that was never used"
    assert s.queues.fresh <= s.pool.quanta, "2: the end of the pool"
    assert len(s.pool.slots) == s.pool.quanta << (s.pool.shift - 2), "2: the pool's slots"


def _check_edges(s: GraphVine, dst: np.ndarray, row: np.ndarray, degrees: np.ndarray) -> None:
    live = dst != NOBODY
    assert live.all() or not s.compact, "6: a dead edge"
    dst, row = dst[live], row[live]
    assert (np.bincount(row, minlength=len(degrees)) == degrees).all(), "5: degree"
    assert not len(dst) or dst.max() < s.n_vertices, "5: dst out of range"
    keys = np.sort(row.astype(np.uint64) << np.uint64(32) | dst)
    assert (keys[1:] != keys[:-1]).all(), "5: an edge twice"
