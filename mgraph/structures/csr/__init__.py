"""Compressed sparse rows, rebuilt by every batch: the benchmarks' baseline."""

from mgraph.structures.csr.structure import CsrStructure

__all__ = ["CsrStructure"]
