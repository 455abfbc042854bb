"""Exports to cuGraph and PyTorch Geometric, from the rows on their device."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from mgraph.client.reads import routed_reads
from mgraph.device import Array
from mgraph.errors import InvalidOption
from mgraph.facade import needed
from mgraph.structures import Csr

__all__ = ["to_cugraph", "to_pyg"]


def to_cugraph(graph: Any) -> Any:
    """Return the graph as a ``cugraph.Graph``, built on the GPU. Needs cuGraph and cuDF.

    The graph must be in this process, on a GPU, without an `order`; `move_to` brings one from a cluster. Vertex i is
    ``vertices()[i]``. In an undirected graph the CSR has each edge both ways, as cuGraph requires. O(n + m).

    Raises
    ------
    InvalidOption
        The graph is on a cluster or on the CPU, or has an order. ``to_pandas`` and ``cugraph.from_pandas_edgelist`` go
        through the host.

    Notes
    -----
    Tested without a GPU, cuDF and cuGraph: with substitute classes.
    """
    if graph.device != "cuda" or not _is_here(graph):
        where = (
            f"on {len(graph.workers)} workers" if graph._client is not None else f"in this process on {graph.device}"
        )
        raise InvalidOption(
            f"to_cugraph takes a graph in this process, on a GPU and without an order; this one is {where}"
        )
    cudf, cugraph = (needed(package, "to_cugraph()") for package in ("cudf", "cugraph"))

    # Hand over the rows, in 32 bits if they suffice.
    rows = _rows(graph)
    kind = np.int32 if max(len(rows.dst), len(rows.offsets)) < 2**31 else np.int64
    result = cugraph.Graph(directed=graph.directed)
    columns = [rows.offsets.astype(kind), rows.dst.astype(kind), *([] if rows.weight is None else [rows.weight])]
    result.from_cudf_adjlist(*map(cudf.Series, columns), renumber=False)
    return result


def to_pyg(graph: Any) -> Any:
    """Return the graph as a ``torch_geometric.data.Data``. Needs PyTorch Geometric. O(n + m log n).

    ``edge_index`` is int64[2, m], and in a weighted graph ``edge_weight`` is float32[m]; ``num_nodes`` is the number of
    vertices, of which number i is ``vertices()[i]``. An undirected edge comes both ways, a loop once. The tensors of a
    graph in this process and without an `order` are on its device, without a copy through the host; others are in host
    memory.

    Notes
    -----
    Tested with PyTorch 2.13 and PyTorch Geometric 2.8 on the CPU; on a GPU with substitute classes.
    """
    from_dlpack = needed("torch", "to_pyg()").from_dlpack
    data = needed("torch_geometric.data", "to_pyg()")
    rows = _rows(graph) if _is_here(graph) else graph.to_csr()
    weight = {} if rows.weight is None else {"edge_weight": from_dlpack(rows.weight)}
    return data.Data(edge_index=from_dlpack(_ends(rows)), num_nodes=len(rows.offsets) - 1, **weight)


def _is_here(graph: Any) -> bool:
    """Return True if the rows are in this process, by users' ids."""
    return graph._client is None and graph._directory.numbering.order is None


def _rows(graph: Any) -> Csr:
    """Return the rows on the graph's device."""
    rows: Csr = graph._directory.read(partial(routed_reads.rows_here, graph._directory.coordinator))
    return rows


def _ends(rows: Csr) -> Array:
    """Return sources and destinations, int64[2, m], on the rows' device. O(m log n)."""
    if isinstance(rows.dst, np.ndarray):
        xp, device = np, nullcontext()
    else:
        import cupy

        xp, device = cupy, rows.dst.device
    with device:
        pairs = xp.empty((2, len(rows.dst)), np.int64)
        pairs[0] = xp.searchsorted(rows.offsets, xp.arange(len(rows.dst)), "right") - 1
        pairs[1] = rows.dst
        return pairs
