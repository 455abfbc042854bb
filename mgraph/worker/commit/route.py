"""Routing of a batch to its owners: sort, split at the range boundaries, exchange, merge.

Every rank does the same; `Ballot` does the rest. The cost of a batch on a GPU, without its structure's prepare and
commit (a column is keys, op or weight):

==========================  ==================================  ========================================================
step                        one rank                            several ranks
==========================  ==================================  ========================================================
`share_runs`                1 launch and a sort per structure;  the same
                            on a GPU a sort alone without an
                            order, directed and checked; of up
                            to 1,024 edges from the host a
                            copy per column
  checked (not yet by the   1 read-back                         the same
  client)
`route`                     nothing: not even a copy            an exchange, a launch for each run received but one;
                                                                with op or weight a copy for each part sent; to split a
                                                                search and a read-back, unless the host has counted
  or, of a batch that each  nothing                             the own rows alone are sent to the device; of more than
  rank has as a whole                                           1,024 edges a copy of the keys, and to split as above
`prepare`, undirected       1 launch, 1 read-back: its counts   the same
`vote`                      nothing                             1 small allreduce
`commit`                    1 wait for the stream               the same
==========================  ==================================  ========================================================

A sort takes a few launches, in `mgraph.structures.sort`; with op or weight it also gathers each column once. An
undirected edge is two consecutive arcs of the stream. So of (a, b) and (b, a) the later wins in both rows by the rule
for repeats, without any ordering before the sort.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.batch import check_ids
from mgraph.device import Array
from mgraph.exchange.columns import join_columns, split_columns
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.structures import Run
from mgraph.structures.merge import merge_in_order
from mgraph.structures.run import FEW, sort_few, sort_run
from mgraph.tables.ids import GROW
from mgraph.worker.shard.shard import Shard

__all__ = ["incident_runs", "least_bytes", "route", "share_runs"]

HALF = 32
#: most comparisons of ids by which the host counts a run's cuts: they take as long as a read-back; a CPU needs none
COUNTED = {"cpu": 0, "cuda": 1 << 18}
#: columns of a run in the order in which they are sent: the widest first, so that each is aligned
SENT: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in (("keys", "u8"), ("time", "i8"), ("weight", "f4"), ("place", "u4"), ("op", "i1"))
}


def share_runs(
    shard: Shard,
    src: Any,
    dst: Any,
    weight: Any = None,
    op: Any = None,
    time: Any = None,
    batch: Any = None,
    *,
    check: bool = False,
    own: bool = False,
) -> list[Run]:
    """Return the sorted runs of a batch's part, or of several batches, given by users' ids in stream order.

    A run per structure, in global internal ids: (src, dst) for `out_edges`, each edge both ways in an undirected graph,
    and (dst, src) for `in_edges` of a directed one. Repeats stay, in stream order. With `own`, of a batch that each
    rank has as a whole, they have this rank's rows alone, and these are local. O(n log n).

    Raises
    ------
    UnknownVertex
        With `check`, for ids that no client has checked: an id past the graph's vertices.
    """
    # A few edges in host memory need no copies of their own: the sort packs and sends them.
    device, order, most = shard.device, shard.order, FEW if shard.directed else FEW // 2
    few = len(src) <= most and not check and type(src) is np.ndarray and type(dst) is np.ndarray
    if few and (order is None or type(order) is np.ndarray):
        if order is not None:
            src, dst = order[src], order[dst]
        columns, rows = (op, weight, time, batch), (shard.lo, shard.hi) if own else None
        out = sort_few(device, src, dst, *columns, both_ways=not shard.directed, rows=rows)
        return [out] if len(shard.structures) == 1 else [out, sort_few(device, dst, src, *columns, rows=rows)]
    ends = src, dst
    src, dst, op, weight, time, batch = map(shard.here, (src, dst, op, weight, time, batch))
    ways = [(src, dst), (dst, src)][: len(shard.structures)]

    # Without an order, the sort makes the keys and saves a launch.
    if shard.directed and order is None and not check and device.kind == "cuda":
        runs = [sort_run(device, None, op, weight, time, batch, src=src, dst=dst) for src, dst in ways]
    else:
        # Otherwise make keys of internal ids, with two arcs per undirected edge.
        if not shard.directed:
            columns = op, weight, time, batch
            op, weight, time, batch = (a if a is None or isinstance(a, int) else device.repeat(a, 2) for a in columns)
        runs = [sort_run(device, _arcs(shard, *way, check and way is ways[0]), op, weight, time, batch) for way in ways]
    if shard.size > 1:
        _count(shard, runs, *ends, (shard.lo, shard.hi) if own else shard.partition.starts[1:-1])
    return [_own_rows(shard, runs.pop(0)) for _ in range(len(runs))] if own else runs


def _count(shard: Shard, runs: list[Run], src: Any, dst: Any, rows: tuple[int, ...]) -> None:
    """Count the runs' cuts at `rows` by columns in host memory, while the device sorts: no read-back is needed."""
    on_host = type(src) is np.ndarray and type(dst) is np.ndarray
    # All ids lie between the bounds of the first and of the last rank.
    known = {shard.n_vertices: len(src), 0: 0}
    unknown = sum(row not in known for row in rows)
    if shard.order is not None or not on_host or len(src) * unknown > COUNTED[shard.device.kind]:
        return
    ways = [(src,), (dst,)] if shard.directed else [(src, dst)]
    for run, columns in zip(runs, ways, strict=False):  # an undirected run has both arcs of an edge
        run.counted = (
            rows,
            [sum(known[row] if row in known else int(np.count_nonzero(ids < row)) for ids in columns) for row in rows],
        )


def least_bytes(shard: Shard, n: int, columns: bool) -> int:
    """Return a lower bound of the host memory of `share_runs` for `n` operations.

    A key is 8 bytes, and 24 more while it is sorted with its place, as ops or weights (`columns`) require.
    """
    arcs = n if shard.directed else 2 * n
    return 0 if shard.device.kind != "cpu" else arcs * (32 if columns else 8)


def _arcs(shard: Shard, src: Array, dst: Array, check: bool = False) -> Array:
    """Return the keys of arcs, in stream order and by internal ids."""
    device, n, stride = shard.device, len(src), 1 if shard.directed else 2
    keys = device.empty(n * stride, np.uint64)
    largest = device.zeros(2, np.uint64) if check else None
    load(device, "kernels/arcs.cuh").Arcs(
        n, src=src, dst=dst, order=shard.order, n=n, vertices=shard.n_vertices, stride=stride,
        keys=keys, largest=largest,
    )  # fmt: skip
    # A largest id out of range: check all, to name the first one.
    if largest is not None and int(device.to_host(largest).max()) >= shard.n_vertices:
        with device.taking(n, f"the check of {n} ids"):
            check_ids(src, shard.n_vertices, "src", GROW)
            check_ids(dst, shard.n_vertices, "dst", GROW)
    return keys


def route(shard: Shard, run: Run, partition: Partition | None = None) -> Run:
    """Send each part of `run` to its owner, and return the merged parts of all ranks, in local rows.

    Owners are the current ones, or by `partition`. Ranks hold contiguous parts of the stream, so that rank order is
    stream order, and the later rank wins. All ranks have the same optional columns.
    """
    if shard.size == 1 and partition is None:
        return run
    partition = partition or shard.partition
    # Keys alone take one exchange without packing.
    parts = run.split(partition.starts)
    with shard.waiting():
        if run.op is None and run.weight is None and run.time is None:
            arrived = [Run(keys) for keys in shard.exchange.alltoallv([part.keys for part in parts])]
        elif shard.size == 1:
            arrived = parts
        else:
            arrived = _swapped(shard, run, parts)
    return merge_in_order(shard.device, arrived, partition.range(shard.rank)[0] << HALF)


def _own_rows(shard: Shard, run: Run) -> Run:
    """Return this rank's part of the run of a whole batch, in local rows: the same as `route` of all ranks' shares."""
    part = run.take(slice(*run.cuts((shard.lo, shard.hi))))
    return merge_in_order(shard.device, [part], shard.lo << HALF)


def _swapped(shard: Shard, run: Run, parts: list[Run]) -> list[Run]:
    """Exchange runs of several columns, packed into bytes."""
    device, dtypes = shard.device, {name: kind for name, kind in SENT.items() if getattr(run, name) is not None}
    # Pack each part's columns; the own part stays.
    packed = [
        device.empty(0, np.uint8)
        if rank == shard.rank
        else join_columns(device, [getattr(part, name) for name in dtypes])
        for rank, part in enumerate(parts)
    ]
    received = shard.exchange.alltoallv(packed)
    return [
        parts[rank] if rank == shard.rank else Run(**split_columns(data, dtypes)) for rank, data in enumerate(received)
    ]


def incident_runs(shard: Shard, ids: Any) -> list[Run]:
    """Return, per structure, the deletions of every edge to or from users' `ids`. O(n + m)."""
    vertices = shard.internal(ids)
    with shard.device.taking(16 * len(vertices), f"{len(vertices)} vertices that leave"):
        rows = vertices[(vertices >= shard.lo) & (vertices < shard.hi)] - np.uint32(shard.lo)
    return [structure.incident(vertices, rows) for structure in shard.structures]
