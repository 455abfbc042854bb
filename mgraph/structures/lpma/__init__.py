"""LPMA: a packed memory array in levels, which grows without moving an edge (lpma paper, Zou et al.)."""

from mgraph.structures.lpma.structure import Lpma

__all__ = ["Lpma"]
