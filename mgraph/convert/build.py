"""Creation of graphs from batches and tables, and export of edges."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch, columns_of
from mgraph.checks import check_count, check_flag, check_growth
from mgraph.client.options import keys_of
from mgraph.client.reports.progress import stage
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.tables.ids import KINDS
from mgraph.tables.names import Names, warn_unused

__all__ = [
    "UNITS", "build", "check_names", "edges_of", "filling", "from_columns", "from_table", "largest_id", "named_edges",
    "names_of", "timed_edges_of",
]  # fmt: skip

UNITS = ("s", "ms", "us", "ns")  #: units of pandas' dates, the coarsest first
Labels = Mapping[str, str]  #: names of a batch's columns in messages


def names_of(
    options: Mapping[str, Any], source: Any = None, target: Any = None, weight: Any = None, time: Any = None
) -> Names:
    """Return the columns for a new graph.

    Weights and times are among them if they are named, or if the options ask for them.
    """
    weighted, timed = options.get("weighted"), [options.get(name) for name in ("times", "window", "window_edges")]
    wants = {
        "weight": weighted is not None and check_flag(weighted, "weighted"),
        "time": any(option is not None and option is not False for option in timed),
    }
    reads = tuple(column for column, wanted in wants.items() if wanted)
    quiet = tuple(
        column for column, option in (("weight", "weighted"), ("time", "times")) if options.get(option) is False
    )
    return Names(source, target, weight, None, time, reads, quiet)


def from_table(
    cls: Any, table: Any, names: Names, client: Any, n_vertices: int | None, options: Mapping[str, Any]
) -> Any:
    """Create a graph from the rows of a table."""
    columns, labels, unused = columns_of(table, names)
    warn_unused(unused)
    return from_columns(cls, columns, labels, client, n_vertices, options)


def from_columns(
    cls: Any,
    columns: Mapping[str, Any],
    labels: Labels,
    client: Any,
    n_vertices: int | None,
    options: Mapping[str, Any],
) -> Any:
    """Create a graph from users' columns."""
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    stage(f"checking {len(columns['src']):,} edges")
    return build(cls, EdgeBatch.of(columns, keys, labels), labels, client, n_vertices, options)


def build(
    cls: Any,
    batch: EdgeBatch,
    labels: Labels,
    client: Any,
    n_vertices: int | None,
    options: Any,
    vertices: Any = (),
) -> Any:
    """Create a graph from a batch.

    Without `n_vertices` it has the vertices up to the largest id, and grows.

    In a graph with keys, `vertices` are keys that have no edge.

    Raises
    ------
    InvalidBatch
        The batch has no edges, and so no largest id; or the ids are too sparse for it to be meant.
    UnknownVertex
        An id is `n_vertices` or more.
    InvalidOption
        Weights with ``weighted=False``, or times with ``times=False``; or an error of `DynamicGraph`.
    """
    # Settle the options by the columns, and check the ids, before there is a graph.
    options = {**options, "keys": batch.keys}
    check_weighted(options, batch.weight is not None)
    if batch.time is not None:
        set_times(options, batch.time.dtype)
    if batch.keys is None:
        check_largest(*largest_id(batch, labels), n_vertices, len(batch))
    # Fill the graph.
    with filling(cls(client, n_vertices, **options)) as graph:
        if len(vertices):
            stage(f"adding {len(vertices):,} vertices")
            graph.add_vertices(vertices)
        if len(batch):
            stage(f"inserting {len(batch):,} edges")
            graph._updates.apply(batch, last=False)
    return graph


def largest_id(batch: EdgeBatch, labels: Labels) -> tuple[int, str]:
    """Return the largest id of a batch, and its description; -1 and "" without edges."""
    if not len(batch):
        return -1, ""
    end = "src" if batch.src.max() >= batch.dst.max() else "dst"
    column = getattr(batch, end)
    row = int(column.argmax())
    return int(column[row]), f"{labels[end]}, row {row}"


def set_times(options: dict[str, Any], dtype: Any) -> None:
    """Set the option `times` to a column's dtype, with a `window` to a common unit.

    Raises `InvalidOption` if it is False.
    """
    if options.get("times") is False:
        raise InvalidOption("times is False and a column of times is named; leave one of them out")
    if options.get("times") is None:
        by_date = isinstance(options.get("window"), str | datetime.timedelta | np.timedelta64)
        options["times"] = np.promote_types(dtype, "datetime64[us]") if by_date and dtype.kind == "M" else dtype


@contextmanager
def filling(graph: Any) -> Iterator[Any]:
    """Yield a new graph for the block to fill. If the block fails, close the graph."""
    try:
        yield graph
    except BaseException:
        graph.close()
        raise


def check_weighted(options: Any, weights: bool) -> None:
    """Set the option `weighted` if there are `weights`."""
    if weights and not options.setdefault("weighted", True):
        raise InvalidOption("weighted is False and a column of weights is named; leave one of them out")


def check_largest(largest: int, what: str, n_vertices: int | None, n_edges: int) -> None:
    """Check that a new graph can hold the largest id. None stands for a graph that grows.

    Raises
    ------
    InvalidBatch
        The graph grows, and has no edge, or the id is too large to be meant.
    UnknownVertex
        The id, described by `what`, is `n_vertices` or more.
    """
    if n_vertices is not None:
        if largest >= check_count(n_vertices, "n_vertices"):
            raise UnknownVertex.past(what, largest, n_vertices)
    elif largest < 0:
        raise InvalidBatch("there are 0 edges, so the number of vertices is not known; give n_vertices or keys")
    else:
        check_growth(largest, what, 0, n_edges)


def edges_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the edges of a graph without their times."""
    return timed_edges_of(graph)[:3]


def timed_edges_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the edges of a graph: sources, targets, weights, times.

    Ends are uint32[m], or keys in a graph that has them. Weights and times may be None; times are int64[m] or
    datetime64[m]. An undirected edge comes once. O(n + m).
    """
    with graph._directory.still():  # vertices that are deleted meanwhile would change places
        csr, names = graph.to_csr(), graph.vertices() if graph.keys in KINDS else None
    # Rows to pairs; an undirected edge is in two rows.
    src = np.repeat(np.arange(len(csr.offsets) - 1, dtype=np.uint32), np.diff(csr.offsets))
    dst, weight, time = csr.dst, csr.weight, csr.time
    if not graph.directed:
        once = src <= dst
        src, dst = src[once], dst[once]
        weight, time = (None if column is None else column[once] for column in (weight, time))
    return (src, dst, weight, time) if names is None else (names[src], names[dst], weight, time)


def named_edges(
    graph: Any,
    source: str,
    target: str,
    weight: str | None,
    time: str | None,
    units: Sequence[str] = UNITS,
    *,
    texts: bool = False,
) -> dict[str, np.ndarray]:
    """Return the edges of a graph as named columns, without those whose name is None.

    Ends are int64 ids or keys, weights float32, times int64 or datetime64 in one of the `units`, the next finer one.
    With `texts` the names must be strings. Raises `InvalidOption` for names that are not, or are equal.
    """
    check_names({"source": source, "target": target, "weight": weight, "time": time}, texts)
    src, dst, values, stamps = timed_edges_of(graph)
    if stamps is not None and time is not None and stamps.dtype.kind == "M":
        stamps = _in_units(stamps, units)
    ends = [end if graph.keys == "string" else end.astype(np.int64) for end in (src, dst)]
    # Leave out the columns that the graph does not have.
    columns = zip((source, target, weight, time), (*ends, values, stamps), strict=True)
    named = [(name, column) for name, column in columns if column is not None and name is not None]
    if len(dict(named)) < len(named):
        raise InvalidOption(f"source, target, weight and time need different names: {[name for name, _ in named]}")
    return dict(named)


def check_names(names: Mapping[str, Any], texts: bool = False) -> None:
    """Raise `InvalidOption` for a name that an argument of `names` cannot have. Only weight and time may be None."""
    for argument, name in names.items():
        left_out = name is None and argument in ("weight", "time")
        usable = isinstance(name, str) or (isinstance(name, Hashable) and name is not None and not texts)
        if not (usable or left_out):
            raise InvalidOption(f"{argument} is {name!r:.200}; it must be a name, as {argument}={argument!r}")


def _in_units(dates: np.ndarray, units: Sequence[str]) -> np.ndarray:
    """Return dates in a unit of `units`; `InvalidOption` for the first that no unit holds exactly."""
    unit = np.datetime_data(dates.dtype)[0]
    if unit in units and np.datetime_data(dates.dtype)[1] == 1:
        return dates
    finer = [other for other in units if other in UNITS]
    kept = dates.astype(f"datetime64[{finer[-1] if unit in ('ps', 'fs', 'as') else finer[0]}]")
    if (bad := kept.astype(dates.dtype) != dates).any():
        raise InvalidOption(f"the time {dates[int(bad.argmax())]} is not a whole number of {kept.dtype}")
    return kept
