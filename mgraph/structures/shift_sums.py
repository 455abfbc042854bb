"""Chunks of the prefix sums of a batch's inserts and deletes, as in ``shift_sums.cuh``."""

from __future__ import annotations

__all__ = ["chunk_shift"]

CHUNK, MOST_CHUNK = 8, 15  # log2 of the keys per block: in batches under 2**21, and in the largest


def chunk_shift(capacity: int) -> int:
    """Return log2 of the keys per chunk, for batches of up to `capacity` operations."""
    return min(CHUNK + (capacity >> 21).bit_length(), MOST_CHUNK)
