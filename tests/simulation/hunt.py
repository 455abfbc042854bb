"""``python tests/simulation/hunt.py FAULT [SHAPE [FIRST [SEEDS]]]``: prints the first seed that finds a planted fault.

For `FOUND` of `test_simulation`, where a change of the product has moved the moments at which seeds act.
"""

from __future__ import annotations

import gc
import os
import sys

import planted
import pytest
from simulated_cluster import simulated
from simulation import Plan, run

__all__ = ["hunt"]


def hunt(fault: str, shape: str = "large", first: int = 0, seeds: int = 2000) -> int | None:
    """The first seed from `first` on that finds the fault of this name, or None."""
    with simulated(), pytest.MonkeyPatch.context() as patch:
        getattr(planted, fault)(patch)
        for seed in range(first, first + seeds):
            if run(Plan.of(seed, shape)).problem is not None:
                return seed
            if seed % 25 == 0:
                gc.collect()
    return None


if __name__ == "__main__":
    print(*sys.argv[1:3], hunt(*sys.argv[1:3], *map(int, sys.argv[3:])), flush=True)
    os._exit(0)  # threads of fibers that a fault has left cannot end
