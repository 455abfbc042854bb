"""GPMA+: a packed memory array updated by counting (gpma paper, Sha et al., VLDB 2017)."""

from mgraph.structures.gpma_plus.structure import GpmaPlus

__all__ = ["GpmaPlus"]
