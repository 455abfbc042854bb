"""Bitmaps of vertices, in words of 32 bits; their kernels are those of `kernels/bits.cuh`."""

__all__ = ["words_of"]


def words_of(n: int) -> int:
    """Return the words that n bits need."""
    return -(-n // 32)
