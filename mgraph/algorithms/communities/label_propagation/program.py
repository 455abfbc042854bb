"""Synchronous label propagation: each rank counts its vertices' neighbours by label, then all ranks share the labels.

All rounds are one program that all ranks run together (`rounds.cuh`, `mgraph.exchange.world`). A rank writes the labels
of its vertices to all ranks while the next ones vote. A round is one meeting of the ranks, and for each group of wide
rows three more of the own blocks.

A group has as many rows as 200 MB have room for their tables (`primitives.label_counts`). On a GPU `compact_rows`
copies rows with gaps once for the call, unless the graph is directed.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming, kernels
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.label_counts import LabelCounts
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array, Device
from mgraph.kernels import Library, View

__all__ = ["run", "warm"]


def _library(shard: Shard, view: View) -> Library:
    return kernels(shard, "algorithms/communities/label_propagation/rounds.cuh", view)


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    out = shard.out_edges
    view = (compact_rows_sample(shard, out) if shard.in_edges is out else out).view()
    _library(shard, view)


def run(shard: Shard, max_iter: int = 10) -> Columns:
    """Return the label of each own vertex after `max_iter` rounds.

    Returns
    -------
    columns : dict
        "label", int64[hi - lo] on the shard's device: places in `Shard.by_name`.
    scalars : dict
        ``communities``, the number of different labels; ``iterations``, the rounds up to the first that changed no
        label.

    Raises
    ------
    CapacityError
        Too little memory: 13 bytes per vertex of the whole graph, 12 bytes per owned vertex, and that of
        `LabelCounts`.

    Notes
    -----
    O(n + m) per round. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    # Choose the rows, and the tables of wide ones.
    device, out, back = shard.device, shard.out_edges, incoming(shard, "label_propagation")
    if back is out:
        views = [compact_rows(shard, out).view()]
    else:
        views = [out.view(), back.view()]  # both have one type, since a kernel reads both
    tally = LabelCounts(device, _library(shard, views[0]), views, shard.hi - shard.lo)
    tally.deal(1)

    # Vote in rounds.
    labels, rounds = _propagate(shard, tally, max_iter)
    own = device.astype(labels[shard.lo : shard.hi], np.int64)
    return {"label": own}, {"communities": _count_labels(tally, labels, shard.n_vertices), "iterations": rounds}


def _count_labels(tally: LabelCounts, labels: Array, n: int) -> int:
    """Count the different labels, all less than `n`. One read-back."""
    seen, count = tally.device.zeros(-(-n // 32), np.uint32), tally.device.zeros(1, np.int64)
    tally.kernels.CountLabels(n, labels=labels, n=n, seen=seen, count=count)
    return int(Device.to_host(count)[0])


def _propagate(shard: Shard, tally: LabelCounts, max_iter: int) -> tuple[Array, int]:
    """Return the labels of all vertices and the number of rounds, by one program."""
    world, n = shard.exchange.world(shard.device), shard.n_vertices
    layout = world.layout(shard.partition, 0, even=4 * n, odd=4 * n)
    state = world.run(
        tally.kernels, "Rounds", layout, 1 + (tally.rows + shard.out_edges.num_edges) // 256,
        tabled=tally.tabled, first_labels=vertex_labels(shard), most=max_iter, even_offset=layout.offsets["even"],
        odd_offset=layout.offsets["odd"], **tally.fields(),
    )  # fmt: skip
    return world.array(layout, ("even", "odd")[state["round"] & 1], n, np.uint32), state["round"]
