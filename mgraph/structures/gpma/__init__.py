"""GPMA: a packed memory array updated under locks, one edge at a time (gpma paper, Algorithm 1)."""

from mgraph.structures.gpma.structure import Gpma

__all__ = ["Gpma"]
