"""Hornet: each row is a block of a power of two of slots, in an array of blocks of its size."""

from mgraph.structures.hornet.check import Fill
from mgraph.structures.hornet.structure import Hornet

__all__ = ["Fill", "Hornet"]
