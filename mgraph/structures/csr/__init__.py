"""Compressed sparse rows: sort, merge, rebuild; the baseline of the benchmarks and the oracle of the tests."""

from mgraph.structures.csr.structure import CsrStructure

__all__ = ["CsrStructure"]
