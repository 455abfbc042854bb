"""Prefix sums of a batch's counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import constants, load

__all__ = ["chunks_of", "running_sums", "sum_by_chunks", "sum_chunks"]

Array = Any
CHUNK = constants("structures/sums.cuh")["chunk_words"]


def running_sums(device: Device, words: Array) -> None:
    """Replace words of 8 bytes by their prefix sums, modulo 2**64. O(n), asynchronous on a GPU.

    Two launches and a fill; CuPy's cumsum takes 50 to 150 us of the host's time.
    """
    if device.kind == "cpu":
        device.cumsum(words, out=words)
    else:
        sum_by_chunks(device, words)


def sum_by_chunks(device: Device, words: Array) -> None:
    """Replace words by their prefix sums, by kernels."""
    n, words, kernels = len(words), words.view(np.uint64), load(device, "structures/sums.cuh")
    before = sum_chunks(device, words, device.zeros(chunks_of(n) + 1, np.uint64))
    kernels.AddBefore(n if len(before) > 1 else 0, words=words, n=n, before=before)


def chunks_of(n: int) -> int:
    """Return the number of chunks of `n` words."""
    return -(-n // CHUNK)


def sum_chunks(device: Device, words: Array, zeros: Array) -> Array:
    """Replace words, uint64[n], by the prefix sums within each chunk, and return the sum before each chunk.

    `zeros` are ``chunks_of(n) + 1`` words of 0, of which the first become these sums. One launch.
    """
    n, before = len(words), zeros[:-1]
    load(device, "structures/sums.cuh").SumChunks(len(before), words=words, n=n, before=before, arrived=zeros[-1:])
    return before
