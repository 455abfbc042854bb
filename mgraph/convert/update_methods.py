"""Methods that change a graph, by arrays and by tables with named columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch, columns_of
from mgraph.client.reports.report import UpdateReport
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.facade import type_name
from mgraph.tables.arrays import library_of
from mgraph.tables.kinds import is_table, table_of
from mgraph.tables.names import Names, warn_unused

__all__ = ["delete", "ingest", "insert", "update"]

SINGLE = (int, str, np.integer)  #: types of a single vertex


def update(
    self: Any,
    batch: Any,
    offset: tuple[str, int] | None = None,
    *,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    op: str | None = None,
    time: str | None = None,
) -> UpdateReport:
    """Apply a batch of insertions and deletions on all workers, atomically.

    If the batch names an edge more than once, the last operation counts. Inserting an edge that exists updates its
    weight. Deleting an edge that does not exist changes nothing and is counted as missing.

    Parameters
    ----------
    batch : EdgeBatch or table
        A table is a frame of pandas, Polars or cuDF, anything with Arrow's PyCapsule interface, or a mapping of arrays;
        a row is an operation.
    offset : (str, int), optional
        The name of a source and the batch's place in it, which is logged with the batch. Places of a source must
        ascend. After `open`, `offsets` tells where to continue, so that each batch is applied exactly once.
    source, target, weight, op, time : str, optional
        The columns of a table that hold each edge's ends, its weight, +1 to insert or -1 to delete, and its time. By
        default the columns have the names of these arguments; "src" and "dst" may name the ends, too. Weights are
        read by default in a weighted graph, and times in one with `times`; without operations all rows are inserted.
        A warning names a column "weight", "op" or "time" that is not used; other columns are not read. An `EdgeBatch`
        needs no names.

    Returns
    -------
    UpdateReport
        The numbers of edges inserted, updated, deleted and missing, the new epoch, and the seconds of the call.

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more.
    InvalidBatch
        The batch has weights and the graph is unweighted. Or it inserts edges without times and the graph has `times`,
        or the other way round. Or a column of a table is not there, or has a missing or wrong value; the message names
        column, row and value.
    InvalidOption
        `offset` is not after the last one of its source, or the graph has no store.
    CapacityError
        A worker has too little memory for the batch. Nothing was changed.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n log n) in total for n operations, divided over the workers.
    """
    if not isinstance(batch, EdgeBatch):
        if not is_table(batch):
            raise TypeError(
                f"a batch is an EdgeBatch or a table of named columns, got {type_name(batch)}; insert() and delete() "
                "take arrays and pairs"
            )
        names = self._options.names(source=source, target=target, weight=weight, op=op, time=time)
        batch = _batch_in(self, batch, names)
    done: UpdateReport = self._updates.apply(batch, offset)
    return done


def insert(
    self: Any,
    src: Any,
    dst: Any = None,
    weight: Any = None,
    time: Any = None,
    *,
    source: str | None = None,
    target: str | None = None,
) -> UpdateReport:
    """Insert edges: arrays, pairs, a single edge, or a table's rows.

    An edge that exists, or comes twice, keeps the last weight and time, unless the graph has another `combine`. In an
    undirected graph ``(u, v)`` and ``(v, u)`` are the same edge, so the last of the two counts.

    Parameters
    ----------
    src, dst : array-like, shape (n,), or one vertex each
        The ends, as `EdgeBatch` takes them. A table, an iterable of pairs or an array of shape (n, 2) takes the place
        of both: ``g.insert(frame, source="from")``, ``g.insert([(u, v), (v, w)])``, ``g.insert(graph.edges)``.
    weight : array-like of numbers, shape (n,), a number, or str, optional
        The weights, or one weight for all edges; for a table, the name of their column, "weight" by default.
    time : array-like of integers, datetime64, dates or strings, shape (n,), a single time, or str, optional
        The times, or one time for all edges, in a graph with `times`; for a table, the name of their column, "time" by
        default.
    source, target : str, optional
        The columns of a table with the ends; by default "source" and "target", or "src" and "dst".

    Returns
    -------
    UpdateReport
        With ``.inserted`` and ``.updated``, the numbers of new edges and of edges that existed, and ``.epoch``.

    Raises
    ------
    InvalidBatch, UnknownVertex, CapacityError, WorkerLost, GraphLost, GraphClosed
        The errors of `update`.

    Notes
    -----
    O(n log n) in total for n edges, divided over the workers.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph(weighted=True)
    >>> g.insert({"from": [0, 1], "to": [1, 2], "km": [1.5, 2.5]}, source="from", target="to", weight="km").inserted
    2
    """
    done: UpdateReport = self._updates.apply(_edges_of(self, src, dst, weight, None, time, source, target))
    return done


def delete(
    self: Any, src: Any, dst: Any = None, *, source: str | None = None, target: str | None = None
) -> UpdateReport:
    """Delete edges: arrays, pairs, a single edge, or a table's rows.

    Deleting an edge that does not exist is no error, and counts as missing. Weights and times of a table are ignored.

    Parameters
    ----------
    src, dst, source, target
        The ends, or a table and its columns, as in `insert`.

    Returns
    -------
    UpdateReport
        With ``.deleted`` and ``.missing``, the numbers of edges that existed and that did not, and ``.epoch``.

    Raises
    ------
    InvalidBatch, UnknownVertex, CapacityError, WorkerLost, GraphLost, GraphClosed
        The errors of `update`.

    Notes
    -----
    O(n log n) in total for n edges, divided over the workers.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph(n_vertices=3)
    >>> report = g.insert([0, 1], [1, 2])
    >>> report = g.delete([0, 2], [1, 0])
    >>> report.deleted, report.missing
    (1, 1)
    """
    done: UpdateReport = self._updates.apply(_edges_of(self, src, dst, None, -1, None, source, target))
    return done


def _edges_of(
    graph: Any, src: Any, dst: Any, weight: Any, op: int | None, time: Any, source: str | None, target: str | None
) -> EdgeBatch:
    """Return the batch of arrays, pairs, a single edge or a table; all have the operation `op`.

    Raises
    ------
    InvalidBatch
        An entry of an iterable is no pair; or `dst` names a column.
    InvalidOption
        Columns are named beside arrays.
    """
    # Pairs, or a table of named columns, of which deletions read the ends only.
    if dst is None:
        src, dst = _ends_of_pairs(src)
    if dst is None:
        if op is None:
            names = graph._options.names(source=source, target=target, weight=weight, time=time, ops=False)
        else:
            names = Names(source, target, reads=(), quiet=("weight", "time"))
        return _batch_in(graph, src, names, op)

    # Arrays, or a single edge.
    if source is not None or target is not None:
        raise InvalidOption(
            f"source is {source!r} and target {target!r}; they name columns, and src and dst are arrays"
        )
    if isinstance(dst, str) and is_table(src):
        raise InvalidBatch(f"src is a table and dst is {dst!r}; source= and target= name the columns of a table")
    if isinstance(src, SINGLE) and isinstance(dst, SINGLE):
        src, dst = [src], [dst]
    keys = graph._directory.keys
    if keys == "auto":
        return EdgeBatch.of({"src": src, "dst": dst, "weight": weight, "op": op, "time": time}, keys, {})
    return EdgeBatch(src, dst, weight, op, keys, time)


def _ends_of_pairs(src: Any) -> tuple[Any, Any]:
    """Return the ends of pairs, an iterable or an array of shape (n, 2); `src` and None if it is neither."""
    # The edges of a graph of NetworkX are a mapping too, but no table. The graph itself iterates over its nodes.
    if hasattr(src, "is_multigraph"):
        raise InvalidBatch(f"src is a {type_name(src)}; its edges are graph.edges, and from_networkx takes it whole")
    if library_of(src) == "scipy":
        raise InvalidBatch(
            f"src is a {type_name(src)}; its edges are tocoo()'s row and col, and from_scipy takes it whole"
        )
    shape: tuple[int, ...] = getattr(src, "shape", ()) if hasattr(src, "dtype") else ()
    if shape[1:] == (2,):
        return src[:, 0], src[:, 1]
    if len(shape) == 2:
        more = "; insert(*src) takes rows of sources and destinations" if shape[0] == 2 else ""
        more = more or ("; weights go into weight=" if shape[1] == 3 else "")
        raise InvalidBatch(f"src has shape {tuple(shape)}; an array of edges has shape (n, 2){more}")
    listed = library_of(src) == "networkx" or not is_table(src)
    if isinstance(src, str) or not isinstance(src, Iterable) or not listed or getattr(src, "ndim", 1) == 0:
        return src, None
    if isinstance(src, tuple) and len(src) == 2 and all(isinstance(ends, list) and len(ends) > 1 for ends in src):
        raise InvalidBatch(
            "src is a tuple of 2 lists, which may be columns or pairs; write insert(src, dst) for columns, and "
            "[(u, v), ...] for pairs"
        )
    pairs = list(src)
    for at, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            more = "; weights go into weight=" if isinstance(pair, tuple | list) and len(pair) == 3 else ""
            raise InvalidBatch(f"edge {at} is {pair!r:.200}; edges in a list are pairs of vertices, (u, v){more}")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _batch_in(graph: Any, table: Any, names: Names, op: int | None = None) -> EdgeBatch:
    """Return the batch of a table, checked for the graph."""
    if isinstance(table, EdgeBatch):
        raise TypeError("an EdgeBatch says itself what it inserts and deletes; give it to update()")
    columns, labels, unused = columns_of(table_of(table), names)
    if op is not None:
        columns["op"] = op
    warn_unused(unused)
    return EdgeBatch.of(columns, graph._directory.keys, labels)


def ingest(
    self: Any,
    data: Any,
    /,
    *,
    steps: int | None = None,
    columns: Mapping[str, str] | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    op: str | None = None,
    time: str | None = None,
) -> list[Any]:
    """Apply batches that the workers read or generate. Each step is an epoch.

    A source is a sequence of parts. Part i goes to rank ``i % size`` in step ``i // size``. If a step names an edge
    more than once, the operation in the later part counts. While one step is exchanged, merged and committed, each
    worker already reads and sorts its next part.

    Parameters
    ----------
    data
        The source. A part is one of: an `EdgeBatch`; `Operations`; a table with columns source and target[,
        weight, op, time]; a tuple of such arrays. A lazy frame of Polars is computed when it is read. Parts of one step
        are all operations, or none is. A source is one of:

        - a Dask DataFrame with these columns, or a tuple or mapping of one-dimensional Dask arrays or series. If
          Dask does not know their lengths, they must be chunked alike. It is computed completely before step 0.
          Keep partitions under a tenth of the memory that a worker has left for each thread: what Dask needs to
          compute them cannot be refused, and past its limit the nanny kills the worker;
        - a future or delayed value of a part, or a list of them. A part that another worker holds is moved;
        - a list of .npz, Parquet and CSV files. Each file is a part, which a worker reads when its step comes;
        - a function ``f(rank, size, step)``, called on every worker, which returns a part, or None after its last
          one. It may fill the same arrays for each part. If it has an argument `device`, it gets the shard's
          `mgraph.device.Device`. It runs in a thread of its own. Dask pickles it, and the modules that it imports
          must be installed on the workers. `mgraph.sources.rmat.Rmat` is an example.
    steps : int, optional
        For functions: the number of steps after which to stop.
    source, target, weight, op, time : str, optional
        The columns of tables and files, as in `update`.
    columns : mapping of str to str, optional
        Deprecated: the same names by ``src``, ``dst``, ``weight``, ``op`` and ``time``.

    Returns
    -------
    list of UpdateReport or Answers
        One for each step: `Answers` where its parts are operations. These take an epoch if there are updates, and
        the answers of all steps must fit into this process.

    Raises
    ------
    InvalidOption
        `data` is none of these, or `steps` or a name does not fit it.
    InvalidBatch, UnknownVertex, ReadError, CapacityError
        A part cannot be read or applied. The message names the step and the epoch; earlier epochs stay committed.
        If a part of a Dask collection cannot be made a batch, nothing was ingested.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    In a graph with keys this process reads the source, since it numbers the keys: a part is a step, a function is
    called as ``f(0, 1, step)``, and Dask's data is computed on the cluster and fetched part by part.

    The client makes one call in total, not one for each step. If only some parts of a step have weights, edges of
    the other parts get weight 1.
    """
    names = self._options.names(columns=columns, source=source, target=target, weight=weight, op=op, time=time)
    done: list[Any] = self._ingest.run(data, steps, names)
    return done
