"""The vertices of the k-core: all levels below k at once, by the peeling of `density.core_number`."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.density.core_number.program import NEVER, REMOVED, Peeling, warm
from mgraph.algorithms.primitives.replicated import sides
from mgraph.device import Device

__all__ = ["run", "warm"]


def run(shard: Shard, k: int | None = None) -> Columns:
    """Whether each own vertex is in the k-core; without `k` in the innermost core that is not empty.

    Returns
    -------
    columns : dict
        "inside", bool[hi - lo] on the shard's device.
    scalars : dict
        ``k``; ``vertices``, how many vertices the k-core has.

    Notes
    -----
    O(n + m) work, with as many supersteps as there are frontiers among the ranks; without `k` that of `core_number`.
    """
    peeling = Peeling(shard, sides(shard, "k_core"))
    least = peeling.least()
    if k is None:
        k = 0
        while least < NEVER:
            k = least
            peeling.peel(k)
            least = peeling.least()
        inside = peeling.core == k
    else:
        if k > 0 and least < k:
            peeling.peel(min(k - 1, REMOVED - 1))
        inside = peeling.left < np.uint32(REMOVED)
    inside = shard.device.asarray(inside)
    mine = np.array([int(Device.to_host(inside.sum(dtype=np.int64)))])
    return {"inside": inside}, {"k": k, "vertices": int(shard.exchange.allreduce(mine)[0])}
