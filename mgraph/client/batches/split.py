"""Split a checked batch into contiguous parts, one per rank."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.batch import COLUMNS, EdgeBatch, check_ids
from mgraph.device import Device
from mgraph.errors import InvalidBatch
from mgraph.facade import type_name
from mgraph.kernels import load
from mgraph.parallel_copy import largest
from mgraph.tables.ids import GROW

__all__ = ["check_batch", "deal", "largest_ids"]


def check_batch(batch: Any, n_vertices: int | None, weighted: bool) -> EdgeBatch:
    """Return `batch` if the graph can take it.

    `n_vertices` is None for a batch of keys.

    Raises
    ------
    TypeError, UnknownVertex, InvalidBatch
        It is no `EdgeBatch`; an id is past the graph's vertices; or the graph is unweighted and the batch has weights.
    """
    if not isinstance(batch, EdgeBatch):
        raise TypeError(
            f"a pipeline takes an EdgeBatch, got {type_name(batch)}; stream() of the graph takes tables and sends "
            "several batches in flight, too"
        )

    # The largest ids show if any is unknown; only then search for it.
    if n_vertices is not None and len(batch.src) and max(largest_ids(batch.src, batch.dst)) >= n_vertices:
        check_ids(batch.src, n_vertices, "src", GROW)
        check_ids(batch.dst, n_vertices, "dst", GROW)
    if batch.weight is not None and not weighted:
        raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
    return batch


def largest_ids(src: Any, dst: Any) -> tuple[int, int]:
    """Return the largest ids of two equally long columns. O(n).

    Columns on one GPU take one launch and one read-back; CuPy's maxima take 0.1 to 0.2 ms of the host's time.
    """
    if isinstance(src, np.ndarray) or isinstance(dst, np.ndarray) or src.device != dst.device:
        if len(src) == 1:  # NumPy's scan takes 2 us
            return int(src.item()), int(dst.item())
        of_src, of_dst = [largest(ids) if isinstance(ids, np.ndarray) else int(ids.max()) for ids in (src, dst)]
        return of_src, of_dst

    # Both columns are on one GPU: a single kernel finds both maxima.
    device, n = _gpu(src.device.id), len(src)
    with src.device:
        maxima = device.zeros(2, np.uint64)
        src, dst = device.asarray(src), device.asarray(dst)
        load(device, "kernels/arcs.cuh").LargestIds(n, src=src, dst=dst, n=n, largest=maxima)
        of_src, of_dst = device.to_host(maxima).tolist()
    return of_src, of_dst


@cache
def _gpu(index: int) -> Device:
    return Device("cuda", index)


def deal(batch: Any, size: int, shared_gpu: bool = False, names: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    """Split the columns `names` of a batch into contiguous shares, one per rank, so that rank order is stream order.

    Host arrays are not copied. CuPy arrays go through page-locked host memory, since Dask's comms carry host memory
    (measured on one H200: 54 GB/s, and 6.5 from pageable memory); with `shared_gpu`, where workers and client are one
    process on GPU 0, those of GPU 0 stay there.
    """
    arrays, columns = batch.__dict__, {}

    # Move columns that are on a GPU to where a comm can read them.
    for name in names:
        column = arrays[name]
        if not (column is None or type(column) is np.ndarray) and hasattr(column, "get"):
            column = _sendable(column, shared_gpu)
        columns[name] = column
    if size == 1:
        return [columns]
    n = len(batch)
    cuts = [n * rank // size for rank in range(size + 1)]
    return [
        {k: c if c is None or isinstance(c, int) else c[a:b] for k, c in columns.items()} for a, b in pairwise(cuts)
    ]


def _sendable(column: Any, shared_gpu: bool) -> Any:
    """Return a CuPy array in a form that a worker can read."""
    import cupy
    import cupyx

    if shared_gpu and column.device.id == 0:
        # The worker's thread reads it on another stream.
        cupy.cuda.get_current_stream().synchronize()
        return column
    host: np.ndarray = cupyx.empty_pinned(column.shape, column.dtype)
    return column.get(out=host)
