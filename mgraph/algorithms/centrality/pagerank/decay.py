"""Weights of edges that halve with their age: the distance of an edge's time to the latest of its source's edges.

Walks choose among the edges of a vertex, so only the ratios within a row matter. They do not depend on the present
time: a clock that moves on changes no rank, and only new edges do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.algorithms.primitives.weight_validation import check_sums
from mgraph.device import Array
from mgraph.structures import Csr, Structure

__all__ = ["WeightedRows", "decayed"]

BYTES = 32  #: per arc, while its weight is computed


@dataclass(frozen=True)
class WeightedRows(CsrRows):
    """Rows with weights that are made for a call.

    Attributes
    ----------
    out_weights : float64[hi - lo]
        The sum of the weights of each own vertex's out-edges.
    """

    out_weights: Array = None


def decayed(shard: Shard, decay: float, weight: bool) -> WeightedRows:
    """Return the in-edges of the own vertices with decayed weights, or the out-edges if the graph stores no in-edges.

    An edge weighs 2 to the power of its age over `decay`, negated; with `weight`, that times its weight. The weights
    are float32: an edge of 150 times `decay` or more weighs 0.

    O(m log m) in a graph with times: those of all arcs are looked up. On several ranks an allgather of 8 bytes per
    vertex. 12 bytes per arc remain, and 32 more are needed meanwhile. `CapacityError` if memory runs out, and
    `InvalidOption` on every rank if a weight is infinite.
    """
    # Weigh the own out-edges, by the latest time of each row.
    device, out = shard.device, shard.out_edges
    csr = out.to_csr()
    times = shard.times_of(csr, None, "out")
    rows, latest = CsrRows(csr.offsets, csr.dst), device.empty(shard.hi - shard.lo, np.int64)
    kernels(shard, "algorithms/centrality/pagerank/decay.cuh", rows.view()).LatestTimes(
        len(latest), graph=rows.view(), n=len(latest), times=times, latest=latest
    )
    with device.taking(8 * len(csr.dst), f"the rows of {len(csr.dst)} arcs"):
        own = device.xp.searchsorted(csr.offsets, device.arange(0, len(csr.dst), np.int64), side="right") - 1
    weighted = _weighted(shard, csr, times, latest[own], decay, weight, out)

    # Add them up. Where in-edges are stored, weigh these by the latest times of their sources.
    sums = device.empty(len(latest), np.float64)
    kernels(shard, "algorithms/centrality/pagerank/ranks.cuh", weighted.view(), BY_WEIGHT=1).OutWeights(
        len(latest), graph=weighted.view(), n=len(latest), sums=sums
    )
    if weight:
        check_sums(shard, sums)
    back = shard.in_edges
    if back is not None:
        csr, latest = back.to_csr(), all_gather(shard, latest)
        times = shard.times_of(csr, None, "in")
        weighted = _weighted(shard, csr, times, device.gather(latest, csr.dst), decay, weight, back)
    return WeightedRows(weighted.offsets, weighted.ids, weighted.weights, weighted.sorted_rows, sums)


def _weighted(
    shard: Shard, csr: Csr, times: Array, latest: Array, decay: float, weight: bool, edges: Structure
) -> CsrRows:
    """Return the rows of a CSR with decayed weights. `latest` has, per arc, the latest time in its source's row."""
    device, xp, n = shard.device, shard.device.xp, len(csr.dst)
    with device.taking(BYTES * n, f"the decay of {n} arcs"), np.errstate(over="ignore", invalid="ignore"):
        ages = (latest - times).view(np.uint64)  # up to 2**64 - 2, which is past int64
        weights = xp.exp2(ages / -decay)
        if weight:
            weights *= csr.weight
    return CsrRows(csr.offsets, csr.dst, device.astype(weights, np.float32), edges.sorted_rows)
