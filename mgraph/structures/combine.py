"""Combination of the weights of repeated insertions."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.kernels import load
from mgraph.structures.run import Run

__all__ = ["COMBINES", "combined"]

COMBINES = ("last", "sum", "min", "max")  #: names of the rules; structures do "last" themselves


def combined(structure: Any, run: Run, how: str, stuck: Any, lo: int = -1) -> Run:
    """Combine the weights of a run with each other and with the structure's, by the rule `how`.

    `stuck`, int64[1], becomes 1 if a sum is so large that a weight does not change it, or makes it infinite. `lo` is
    the vertex of row 0 in an undirected graph, where a self-loop comes as two consecutive arcs.

    A deletion discards earlier insertions. Weights are combined in stream order, so that sums of floats do not depend
    on timing. One launch and no read-back; O(1) per operation besides the search of its edge. May overwrite the run's
    weights.
    """
    if how == "last" or len(run) == 0:
        return run
    device, view = structure.device, structure.view()
    weight = device.full(len(run), 1, np.float32) if run.weight is None else run.weight
    load(device, "structures/combine.cuh", view).Combine(
        len(run), graph=view, keys=run.keys, op=run.op, weight=weight, n=len(run), how=COMBINES.index(how), lo=lo,
        stuck=stuck,
    )  # fmt: skip
    return Run(run.keys, run.op, weight, run.unchecked, batch=run.batch)
