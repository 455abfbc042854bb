"""Bit-parallel breadth-first search: up to 64 searches at a time, one bit each."""
