"""GPMA+: a packed memory array updated by counting (gpma paper)."""

from mgraph.structures.gpma_plus.structure import GpmaPlus

__all__ = ["GpmaPlus"]
