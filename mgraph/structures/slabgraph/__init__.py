"""SlabGraph: a hash table of slabs per vertex (SlabGraph paper)."""

from mgraph.structures.slabgraph.structure import SlabGraph

__all__ = ["SlabGraph"]
