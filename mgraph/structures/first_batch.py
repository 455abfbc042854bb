"""First batch of an empty structure: its inserts get consecutive numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct, constants
from mgraph.structures.plan import Counts
from mgraph.structures.run import Run

__all__ = ["number_first_batch"]

WORD_KEYS = constants("structures/first_batch.cuh")["word_keys"]


def number_first_batch(device: Device, kernels: Library, run: Run) -> tuple[Counts, Any, Struct]:
    """Return counts, outcomes, and the keys' numbers as a struct for kernels.

    One launch, a scan and a read-back; another read-back if the run has ops. Takes 1.25 bytes per key. `kernels` is a
    library with the kernel MarkInserts of ``first_batch.cuh``.
    """
    n, words = len(run), -(-len(run) // WORD_KEYS)
    outcome, acts, before = device.carve((n, np.uint8), (words, np.uint32), (words + 1, np.uint32))
    misses = device.zeros(1, np.int64)
    kernels.MarkInserts(words, keys=run.keys, op=run.op, n=n, outcome=outcome, acts=acts, before=before, misses=misses)
    device.cumsum(before, out=before)
    total = int(before[-1])
    missing = 0 if run.op is None else int(misses[0])
    return Counts(inserted=total, missing=missing), outcome, Struct(acts=acts, before=before, n=n, total=total)
