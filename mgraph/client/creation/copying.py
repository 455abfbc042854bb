"""Copy a graph: an independent graph in the same place, cloned on each device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from mgraph.client.batches.source_ingest import Ingest
from mgraph.client.batches.updates import Updates
from mgraph.client.creation.place import directory
from mgraph.client.options import Options, choose_structure
from mgraph.errors import WorkerLost
from mgraph.failures import Recovered

__all__ = ["copy"]

G = TypeVar("G")  #: the class of the graph


def copy(self: G, *, structure: str | None = None) -> G:
    """Return an independent copy of the graph as it is now, to be read or changed while the graph goes on.

    The copy is on the same workers, or in this process. It has the same vertices, keys, edges, weights, times and
    order, and begins at the same epoch. Its calls and those of the graph do not wait for each other.

    A copy has no store, no window, no published name, no results and no maintained results, and no other client. So it
    keeps the edges that the graph's window would remove, and a loss of a worker ends it. It outlives the graph.

    Parameters
    ----------
    structure : str, optional
        Another data structure, one of `mgraph.structures.names()`, with options as in "slabgraph:slab=32"; "csr" is the
        fastest for algorithms. By default the graph's own.

    Returns
    -------
    DynamicGraph
        Close it to free its memory, or use it as ``with g.copy() as h:``.

    Raises
    ------
    InvalidOption
        There is no such structure, or it has no such option.
    CapacityError
        A worker has no memory for its part of the copy. No worker has made one.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m), divided over the workers: a copy of the memory. In another structure, O(n + m log m) at most: it is built
    from the sorted edges. With keys, this process copies its table of them, too. Each worker needs the bytes of its
    part, `balance` has them, and for another structure about 24 bytes per arc more while it is built.

    The call takes its turn among those of the graph, between two batches of a pipeline or a stream too. It waits for
    the batches in flight, and all workers copy the same epoch. In a published graph it holds the turn no longer than
    any call. On a CPU the copy's calls leave a core to the graph, and do not take its helper threads. On a GPU its
    kernels have the lowest priority; those that stay take at most three quarters of it, and leave it after 2 ms.

    After a Ctrl-C, or an error, nothing of the copy is left.

    Examples
    --------
    >>> with DynamicGraph() as g:
    ...     report = g.insert(["ada", "grace"], ["grace", "edsger"])
    ...     with g.copy() as h:
    ...         report = g.delete(["ada"], ["grace"])
    ...         h.epoch, h.num_edges, g.epoch, g.num_edges
    (1, 2, 2, 1)
    """
    graph: Any = self
    while True:
        caller = graph._directory.coordinator
        incarnation = caller.status.incarnation
        try:
            copied: G = _copied(graph, structure)
            return copied
        except (Recovered, WorkerLost):
            # The graph may have been recovered, and is then copied on its new workers; else it raises the loss.
            caller.call("inspect")
            if caller.status.incarnation == incarnation:
                raise


def _copied(graph: Any, structure: str | None) -> Any:
    """Return a copy; `Recovered` if the graph was recovered meanwhile."""
    graph._directory.check()
    options = _options(graph._directory.options, structure)
    advice = f"; it is a copy of graph {graph.id}, without a store, and does not come back: copy that graph again"
    caller, parts = graph._beside(options.patience, advice)
    try:
        caller.call("inspect")  # its ranks exist from now on, and take the copies
        # Nobody changes the vertices before the ranks have made their copies.
        with graph._directory.still() as table:
            n = graph._directory.n_vertices
            keys = None if table is None else table.without(n, np.empty(0, np.int64))
            graph._directory.coordinator.call("copy", {"graph": caller.status.graph, "structure": options.structure})
            numbering = graph._directory.numbering.with_keys(keys)
        caller.call("adopt", {"exchange": options.exchange})
    except BaseException:
        caller.close()
        raise

    # Set up the graph without its constructor, which would make shards.
    cls: Any = type(graph)
    twin = cls.__new__(cls)
    twin._client, twin._storing, twin._options = graph._client, None, options
    twin._directory = directory(caller, options, numbering)
    twin._updates = Updates(twin._directory, options, order_due=graph._updates.order_due)
    twin._ingest = Ingest(twin._updates, twin._directory, parts)
    return twin


def _options(options: Options, structure: str | None) -> Options:
    """Return the options of a copy, which has no window."""
    chosen = options.structure if structure is None else structure
    options = replace(options, structure=chosen, window=None, window_edges=None)
    return replace(options, structure=choose_structure(chosen, options.device, options.grows))
