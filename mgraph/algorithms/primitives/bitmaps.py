"""Bitmaps of vertices in 32-bit words, for the kernels of `kernels/bits.cuh`."""

__all__ = ["words_of"]


def words_of(n: int) -> int:
    """Return the number of words for n bits."""
    return -(-n // 32)
