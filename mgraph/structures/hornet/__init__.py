"""Hornet: a row is one block of a power of two of slots, and blocks of one size lie in block arrays."""

from mgraph.structures.hornet.check import Fill
from mgraph.structures.hornet.structure import Hornet

__all__ = ["Fill", "Hornet"]
