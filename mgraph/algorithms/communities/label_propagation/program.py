"""Synchronous label propagation: each rank counts its vertices' neighbours by label, then all ranks share the labels.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a round           1; 3 more, 4 if directed, for each group of rows of more  an allreduce of one number; an allgather of
                  than 192 edges; a read-back                               4 bytes a vertex
================= ========================================================= ===========================================

A group is as many rows as have tables in 200 MB; see `primitives.label_counts`. On a GPU rows with gaps are copied once
for the call, see `packed`, unless the graph is directed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming
from mgraph.algorithms.primitives.compact_csr import packed, some_packed
from mgraph.algorithms.primitives.label_counts import Tally, tally_kernels
from mgraph.algorithms.primitives.replicated import share
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array, Device

__all__ = ["count_labels", "run", "warm"]


def count_labels(device: Device, labels: Array, n: int) -> int:
    """How many different labels there are, all less than `n`; one read-back."""
    seen = device.zeros(n, np.uint8)
    for part in device.slices(len(labels)):
        seen[labels[part]] = 1
    return int(Device.to_host(seen.sum(dtype=np.int64)))


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    out = shard.out_edges
    tally_kernels(shard, (some_packed(shard, out) if shard.in_edges is out else out).view())


def run(shard: Shard, max_iter: int = 10) -> Columns:
    """The label of each own vertex after `max_iter` rounds.

    Returns
    -------
    columns : dict
        "label", int64[hi - lo] on the shard's device: places in `Shard.by_name`.
    scalars : dict
        ``communities``, the number of different labels; ``iterations``, rounds up to the first that changed none.

    Raises
    ------
    CapacityError
        There is too little memory for 5 bytes a vertex of the whole graph, 12 bytes an owned vertex, and what `Tally`
        takes.

    Notes
    -----
    O(n + m) a round. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    device, out, back = shard.device, shard.out_edges, incoming(shard, "label_propagation")
    degrees = out.degrees()
    if back is out:
        views = [packed(shard, out).view()]
    else:
        views = [out.view(), back.view()]  # of one type, so that a kernel can read both
        degrees += back.degrees()
    tally = Tally(shard, views, degrees)
    labels = vertex_labels(shard)
    chosen, rounds = labels[shard.lo : shard.hi].copy(), 0
    votes: dict[str, Any] = {"first": shard.lo, "unit": 0.0, "price": 0.0, "classes": 0, "turn": 0, "seed": 0}
    votes |= dict.fromkeys(("strength", "sums", "names", "moves", "count"))
    while rounds < max_iter:
        rounds += 1
        tally.vote({**votes, "labels": labels, "chosen": chosen})
        changed = int(Device.to_host((chosen != labels[shard.lo : shard.hi]).sum(dtype=np.int64)))
        if int(shard.exchange.allreduce(np.array([changed]))[0]) == 0:
            break
        if shard.size == 1:
            labels, chosen = chosen, labels
        else:
            share(shard, chosen, labels)
    own = device.astype(labels[shard.lo : shard.hi], np.int64)
    return {"label": own}, {"communities": count_labels(device, labels, shard.n_vertices), "iterations": rounds}
