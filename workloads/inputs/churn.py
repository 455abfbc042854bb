"""Batches of inserts and deletes mixed, drawn where they are needed: a source for `DynamicGraph.ingest`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.device import Array, Device
from mgraph.sources.rmat import Rmat

__all__ = ["Churn"]


@dataclass(frozen=True)
class Churn:
    """In each step the next edges of one sequence are inserted, and after them the next of another deleted.

    Parameters
    ----------
    come, go : Rmat
        What is inserted, and what is deleted: where `go` starts behind `come` in the same sequence, old edges.
    """

    come: Rmat
    go: Rmat

    def __call__(self, rank: int, size: int, step: int, device: Device) -> tuple[Array, Array, None, Array]:
        """The operations of a rank's step: src, dst, no weight, op; on `device`, asynchronous on a GPU."""
        xp = device.xp
        come, go = (part(rank, size, step, device) for part in (self.come, self.go))
        op = device.full(len(come[0]) + len(go[0]), 1, np.int8)
        op[len(come[0]) :] = -1
        src, dst = (xp.concatenate(columns) for columns in zip(come, go, strict=True))
        return src, dst, None, op
