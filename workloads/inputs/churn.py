"""Mixed batches of inserts and deletes, drawn on the workers: a source for `DynamicGraph.ingest`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.device import Array, Device
from mgraph.sources.rmat import Rmat
from workloads.inputs.worker_edges import WorkerEdges

__all__ = ["Churn"]


@dataclass(frozen=True)
class Churn:
    """Source that inserts the next edges of a sequence in each step, and deletes the next of another.

    Parameters
    ----------
    come, go : Rmat or WorkerEdges
        Inserted and deleted edges. If `go` starts behind `come` in the same sequence, old edges are deleted.
    """

    come: Rmat | WorkerEdges
    go: Rmat | WorkerEdges

    def __call__(self, rank: int, size: int, step: int, device: Device) -> tuple[Array, Array, None, Array]:
        """Return the operations of a rank's step: src, dst, no weight, op.

        On `device`, asynchronous on a GPU.
        """
        xp = device.xp
        come, go = (part(rank, size, step, device) for part in (self.come, self.go))
        op = device.full(len(come[0]) + len(go[0]), 1, np.int8)
        op[len(come[0]) :] = -1
        src, dst = (xp.concatenate(columns) for columns in zip(come, go, strict=True))
        return src, dst, None, op
