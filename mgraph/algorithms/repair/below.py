"""All that hangs below suspects without support, at once.

Chains on roads have thousands of vertices, and each step along one waits for memory. So every vertex of the graph is
hung on one that supports it, and pointers jump up to the roots of these trees, in a few passes over all vertices.
`CutOff` is tried first where there are few suspects, since chains may be short. Both read the graph's rows; those that
are read here are not counted as visited edges.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard
from mgraph.algorithms.near_far.search import Search
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants
from mgraph.structures import Structure

__all__ = ["cut_below", "may_jump"]

SPARSE = 8  #: mean degree up to which paths may be so long that this pays
TURNS = 8  #: of `CutOff`, before it is given up
SUSPECTS = 8  #: with more of them, `CutOff` is left out
JUMPS = 6  #: rounds of jumps between two looks whether all pointers have arrived, each of which goes 4 times as far
LISTED, CUT, EDGES, TIED, JUMPED = 0, 1, 3, 5, 7  #: words of the state; the last of JUMPS rounds
assert constants("algorithms/repair/known.cuh", LENGTHS=32, CHUNK_WORDS=1)["r_turns"] == JUMPED


class Repair(Protocol):
    """What is asked of `mgraph.algorithms.repair.repair.Repair`."""

    shard: Shard
    device: Device
    search: Search
    kernels: Library
    known: Struct
    state: Array
    cut: Array
    listed: Array
    gone: Array
    tied: bool

    @property
    def backward(self) -> list[Structure]: ...

    @property
    def bounded(self) -> bool: ...

    def read(self) -> np.ndarray: ...


def may_jump(repair: Repair) -> bool:
    """Whether a rank is alone with one structure of few edges a vertex, and blocks may go on by themselves."""
    sparse = repair.shard.out_edges.num_edges <= SPARSE * repair.search.n
    return sparse and repair.bounded and repair.search.spreads and len(repair.backward) == 1 and not repair.tied


def cut_below(repair: Repair, changed: Struct, n: int) -> list[Array]:
    """Cut all that hangs below suspects without support; a list of it.

    Nothing where a vertex hangs on another of its own length: then the suspects are as they were at first.
    """
    device, kernels, state, rows = repair.device, repair.kernels, repair.state, repair.search.n
    (edges,) = repair.backward
    _suspect_again(repair, changed, n)
    kernels.Hang(-(-rows // LANES), graph=edges.view(), known=repair.known)
    while True:
        device.fill(state[JUMPED:], 0)
        for round in range(JUMPS):
            kernels.Jump(rows, known=repair.known, round=round)
        kernels.Below(rows, known=repair.known, round=JUMPS - 1)
        counts = repair.read()
        if not counts[JUMPED + JUMPS - 1]:
            break
    device.fill(state[JUMPED:], 0)
    if counts[TIED]:
        repair.tied = True
        _suspect_again(repair, changed, n)
        return []
    device.fill(repair.listed, 0)
    device.fill(state[LISTED : LISTED + 1], 0)
    counts[LISTED] = 0
    return [repair.gone[: int(counts[CUT])]]


def _suspect_again(repair: Repair, changed: Struct, n: int) -> None:
    for words in (repair.cut, repair.listed, repair.state[:EDGES], repair.state[TIED:]):
        repair.device.fill(words, 0)
    repair.kernels.Suspect(n, known=repair.known, changed=changed)
