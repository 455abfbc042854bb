"""What an empty structure's first batch does, without a search: the keys that act, numbered through."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct
from mgraph.structures.contract import Counts
from mgraph.structures.run import Run

__all__ = ["number_keys"]

WORD_KEYS = 32  # as numbers.cuh has it


def number_keys(device: Device, kernels: Library, run: Run) -> tuple[Counts, Any, Struct]:
    """The counts, the outcomes, and for kernels the numbers; one launch, a scan, a read-back, and one more for ops.

    `kernels` is a library that has Mark, of ``numbers.cuh``. A key takes 1 1/4 bytes.
    """
    n, words = len(run), -(-len(run) // WORD_KEYS)
    outcome, acts, before = device.carve((n, np.uint8), (words, np.uint32), (words + 1, np.uint32))
    misses = device.zeros(1, np.int64)
    kernels.Mark(words, keys=run.keys, op=run.op, n=n, outcome=outcome, acts=acts, before=before, misses=misses)
    device.xp.cumsum(before, dtype=np.uint32, out=before)
    total = int(before[-1])
    missing = 0 if run.op is None else int(misses[0])
    return Counts(inserted=total, missing=missing), outcome, Struct(acts=acts, before=before, n=n, total=total)
