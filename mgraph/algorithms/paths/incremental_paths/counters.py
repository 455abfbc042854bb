"""Counters of the kernels for incremental paths: `Counter` in tree_state.cuh."""

from __future__ import annotations

from mgraph.kernels import constants

__all__ = ["CUT", "EDGES", "LEFT", "REFUSED", "SEEDS", "SUSPECTS", "TIED", "TURNS", "WORDS"]

SUSPECTS, CUT, SEEDS, EDGES, REFUSED, TIED, LEFT, TURNS = range(8)
WORDS = 16  #: including those of `InvalidatePersistent`, from TURNS on
_STATE = constants("algorithms/paths/incremental_paths/tree_state.cuh", LENGTHS=32)
assert len(_STATE.enums["Counter"]) == TURNS + 1
