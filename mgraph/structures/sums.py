"""Running sums of a batch's counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import constants, load

__all__ = ["running_sums", "sum_by_chunks"]

Array = Any
CHUNK = constants("structures/sums.cuh")["chunk_words"]


def running_sums(device: Device, words: Array) -> None:
    """Replace words of 8 bytes by their running sums, modulo 2**64. O(n), asynchronous on a GPU.

    CuPy's cumsum takes 50 to 150 us of the host's time there, this two launches and a fill.
    """
    if device.kind == "cpu":
        device.cumsum(words, out=words)
    else:
        sum_by_chunks(device, words)


def sum_by_chunks(device: Device, words: Array) -> None:
    """`running_sums` by kernels."""
    n, words = len(words), words.view(np.uint64)
    chunks, kernels = -(-n // CHUNK), load(device, "structures/sums.cuh")
    zeros = device.zeros(chunks + 1, np.uint64)
    before = zeros[:chunks]
    kernels.SumChunks(chunks, words=words, n=n, before=before, arrived=zeros[chunks:])
    kernels.AddBefore(n if chunks > 1 else 0, words=words, n=n, before=before)
