"""The words in which kernels count what is repaired: `Repair` in tree_state.cuh."""

from __future__ import annotations

from mgraph.kernels import constants

__all__ = ["CUT", "EDGES", "LEFT", "REFUSED", "SEEDS", "SUSPECTS", "TIED", "TURNS", "WORDS"]

SUSPECTS, CUT, SEEDS, EDGES, REFUSED, TIED, LEFT, TURNS = range(8)
WORDS = 16  #: with those of `CutOff`, from TURNS on
assert (
    len(constants("algorithms/paths/incremental_paths/tree_state.cuh", LENGTHS=32, CHUNK_WORDS=1).enums["Repair"])
    == TURNS + 1
)
