"""LPMA: a packed memory array in levels (lpma paper, Zou et al.)."""

from mgraph.structures.lpma.structure import Lpma

__all__ = ["Lpma"]
