"""The chunks by which a batch's inserts and deletes are summed up; see ``shift_sums.cuh``."""

from __future__ import annotations

__all__ = ["chunk_shift"]

CHUNK, MOST_CHUNK = 8, 15  # log2 of how many keys one block counts: in batches under 2**21, and in the largest


def chunk_shift(capacity: int) -> int:
    """log2 of the keys in a chunk, for batches of up to `capacity` operations."""
    return min(CHUNK + (capacity >> 21).bit_length(), MOST_CHUNK)
