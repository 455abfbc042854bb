"""S. Vigna's SplitMix64 for arrays of uint64 on any device."""

from __future__ import annotations

import numpy as np

from mgraph.device import Array

__all__ = ["mix64", "splitmix", "start_of"]


def mix64(keys: Array) -> Array:
    """Return SplitMix64's finaliser of each key, a bijection."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def splitmix(counter: Array, start: int) -> Array:
    """Return the random numbers at positions `counter`, uint64, of the sequence from `start`."""
    return mix64(counter * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start))


def start_of(seed: int) -> int:
    """Return the 64-bit start of the sequence of `seed`."""
    return (seed * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) % 2**64
