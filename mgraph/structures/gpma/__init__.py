"""GPMA: a packed memory array updated under locks (gpma paper, Algorithm 1)."""

from mgraph.structures.gpma.structure import Gpma

__all__ = ["Gpma"]
