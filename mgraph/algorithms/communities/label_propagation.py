"""Synchronous label propagation: each rank counts its vertices' neighbours by label, then all ranks share the labels.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a round           1; 3 more, 4 if directed, for each group of rows of more  an allreduce of one number; an allgather of
                  than 192 edges; a read-back                               4 bytes per vertex
================= ========================================================= ===========================================

A group has as many rows as 200 MB have room for their tables (`primitives.label_counts`). On a GPU `compact_rows`
copies rows with gaps once for the call, unless the graph is directed.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard, incoming
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.label_counts import NO_VOTES, LabelCounts, label_count_kernels
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.checks import check_whole
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "count_labels", "label_propagation", "run", "warm"]


T = TypeVar("T")


def label_propagation(self: Runs[T], max_iter: int = 10) -> T:
    """Compute the label of each vertex, a vertex id, by `max_iter` rounds of label propagation.

    Labels are int64, and stay on the workers. Every vertex begins with its own id as its label. In each round all
    vertices at once take the most frequent label among their neighbours; of labels equally frequent, the smallest. A
    vertex without neighbours keeps its label. On a directed graph, in- and out-neighbours count, and a neighbour joined
    by both arcs counts twice. A self-loop makes a vertex a neighbour of its own. Weights are ignored. These are the
    rules of LDBC Graphalytics.

    Parameters
    ----------
    max_iter : int
        The number of rounds, 0 or more.

    Returns
    -------
    VertexValues
        With ``.communities``, the number of different labels, and ``.iterations``, the computed rounds: fewer than
        `max_iter` if a round changed no label.

    Raises
    ------
    InvalidOption
        `max_iter` is not a whole number of 0 or more, or the graph is directed and has no in-edges.
    CapacityError
        A worker has too little memory: 5 bytes per vertex of the whole graph, 12 per own vertex, and for rows of more
        than 192 edges 200 MB, or 24 per edge of the largest row if that is more.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per round, which is one superstep. Labels are counted in hash tables. Each worker receives 4 bytes per
    vertex of the others in a round. The result is exact: it does not depend on the order of the vertices, the structure
    or the number of workers. After U. N. Raghavan, R. Albert, S. Kumara, "Near linear time algorithm to detect
    community structures in large-scale networks", Phys. Rev. E 76, 2007, made synchronous.

    Examples
    --------
    >>> g.insert([0, 1, 2, 4], [1, 2, 0, 5])  # of 6 vertices, with directed=False  # doctest: +SKIP
    >>> g.label_propagation(3).to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 5, 4])
    """
    return self.run("label_propagation", max_iter=max_iter)


def check(graph: GraphFacts, max_iter: Any = 10) -> dict[str, Any]:
    """Return the program's arguments."""
    if not graph.reverse:
        raise InvalidOption(
            "label_propagation needs in-edges; create the graph with reverse=True, or with directed=False"
        )
    return {"max_iter": min(check_whole(max_iter, "max_iter"), sys.maxsize)}


def count_labels(device: Device, labels: Array, n: int) -> int:
    """Count the different labels, all less than `n`. One read-back."""
    seen = device.zeros(n, np.uint8)
    for part in device.slices(len(labels)):
        seen[labels[part]] = 1
    return int(Device.to_host(seen.sum(dtype=np.int64)))


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    out = shard.out_edges
    label_count_kernels(shard, (compact_rows_sample(shard, out) if shard.in_edges is out else out).view())


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
        Too little memory: 5 bytes per vertex of the whole graph, 12 bytes per owned vertex, and that of `LabelCounts`.

    Notes
    -----
    O(n + m) per round. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    # Choose the rows, and the tables of wide ones.
    device, out, back = shard.device, shard.out_edges, incoming(shard, "label_propagation")
    degrees = out.degrees()
    if back is out:
        views = [compact_rows(shard, out).view()]
    else:
        views = [out.view(), back.view()]  # of one type: a kernel reads both
        degrees += back.degrees()
    tally = LabelCounts(shard, views, degrees)

    # Each round: vote, end if no label changed, and gather the labels of all vertices.
    labels = vertex_labels(shard)
    chosen, rounds = labels[shard.lo : shard.hi].copy(), 0
    votes = {**NO_VOTES, "first": shard.lo}
    while rounds < max_iter:
        rounds += 1
        tally.vote({**votes, "labels": labels, "chosen": chosen})
        changed = int(Device.to_host((chosen != labels[shard.lo : shard.hi]).sum(dtype=np.int64)))
        if int(shard.exchange.allreduce(np.array([changed]))[0]) == 0:
            break
        if shard.size == 1:
            labels, chosen = chosen, labels
        else:
            all_gather(shard, chosen, labels)
    own = device.astype(labels[shard.lo : shard.hi], np.int64)
    return {"label": own}, {"communities": count_labels(device, labels, shard.n_vertices), "iterations": rounds}


ALGORITHM = Algorithm(
    name="label_propagation",
    check=check,
    run=run,
    columns={"label": "label"},
    scalars=("communities", "iterations"),
    warm=warm,
)
