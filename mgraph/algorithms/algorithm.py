"""The interface of an algorithm: its description for the client, the shard that its program sees, and its kernels.

An algorithm has a method that users call, the check of its arguments, a program that each rank runs in lockstep with
the others, and the `Algorithm`. All are in one module, or in a folder: `method.py`, `program.py` and the kernels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from mgraph.checks import check_vertex, check_vertices
from mgraph.device import Array, Device
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError
from mgraph.exchange import Exchange
from mgraph.facade import hint
from mgraph.kernels import Library, View, load
from mgraph.partition import Partition
from mgraph.structures import Structure
from mgraph.tables.arrays import shown

__all__ = [
    "CHUNK",
    "HUB_DEGREE",
    "LANES",
    "Algorithm",
    "ApplyResult",
    "Columns",
    "EdgeDelta",
    "GraphFacts",
    "Maintained",
    "Names",
    "Renumbering",
    "Runs",
    "Shard",
    "Vertex",
    "VertexData",
    "Vertices",
    "incoming",
    "kernels",
    "task_room",
]

HUB_DEGREE = 1024  #: a vertex of more edges is a hub: its row is split into tasks of about as many, for any tile
CHUNK = 128  #: words of a bitmap that one tile compacts: larger means fewer atomics, smaller means more tiles at work
LANES = 32  #: rows that a tile takes at once

#: The result of a program: columns by name, the main one first, each with one entry for each owned vertex, in internal
#: order on the shard's device; and scalars by name, which are the same on every rank.
Columns = tuple[dict[str, Any], dict[str, Any]]

#: ``names(ids)``: users' ids of vertices as the user names them
Names = Callable[[np.ndarray], np.ndarray]

Result_co = TypeVar("Result_co", covariant=True)


# ---- the user's side -------------------------------------------------------------------------------------------------


class Runs(Protocol[Result_co]):
    """The object that a method is bound to: a graph that runs algorithms by name."""

    def run(self, algorithm: str, /, **arguments: Any) -> Result_co:
        """Check the arguments, run the algorithm on all ranks, and return its result."""
        ...


@dataclass(frozen=True)
class GraphFacts:
    """The properties of a graph on which the check of an algorithm's arguments may depend.

    Parameters
    ----------
    n_vertices : int
    directed, weighted : bool
    reverse : bool
        Whether the graph has in-edges: stored with ``reverse=True``, or those of an undirected graph.
    ids : callable, optional
        In a graph with keys, ``ids(keys, name)`` returns the vertices' ids.
    """

    n_vertices: int
    directed: bool
    weighted: bool
    reverse: bool
    ids: Callable[[Any, str], np.ndarray] | None = None

    def vertex(self, value: Any, name: str) -> int:
        """The id of a vertex as the user names it; raises as `check_vertex`."""
        if self.ids is None:
            return check_vertex(value, self.n_vertices, name)
        try:
            return int(self.vertices([value], name)[0])
        except MgraphError as error:
            raise type(error)(str(error).replace(f"{name}[0]", name, 1)) from None

    def vertices(self, values: Any, name: str) -> np.ndarray:
        """The ids of vertices as the user names them, uint32[k] with k > 0; raises as `check_vertices`."""
        if self.ids is None:
            return check_vertices(values, self.n_vertices, name)
        try:
            ids = self.ids(values, name)
        except InvalidBatch as error:
            raise InvalidOption(str(error)) from None
        if len(ids) == 0:
            raise InvalidOption(f"{name} is empty; at least one vertex is needed")
        return ids

    def check_distinct(self, values: Any, ids: np.ndarray, name: str, what: str) -> None:
        """Raise `InvalidOption` if `ids`, those of the vertices `values`, have a vertex twice; it names the place."""
        _, first = np.unique(ids, return_index=True)
        if len(first) < len(ids):
            again = int(np.setdiff1d(np.arange(len(ids)), first)[0])
            twice = ids[again] if self.ids is None else shown(list(values)[again])
            raise InvalidOption(f"{name}[{again}] is {twice}, which comes before; {what} must be different")


@dataclass(frozen=True)
class Vertex:
    """An argument that is a vertex. `id` is the user's id; the program gets the internal id instead."""

    id: int


@dataclass(frozen=True)
class Vertices:
    """An argument that is an array of vertices. `ids` are users' ids, uint32[k]; the program gets internal ids."""

    ids: np.ndarray


@dataclass(frozen=True)
class VertexData:
    """An argument that has a number for each vertex: an array by users' ids, or an earlier result.

    With `rows` it has several rows, float64[k, n_vertices].

    The program gets the part of the own vertices, on the shard's device or in host memory.
    """

    values: Any
    rows: bool = False


@dataclass(frozen=True)
class Algorithm:
    """The description of an algorithm that the client, the workers and the documentation use.

    Parameters
    ----------
    name : str
        The name of the method, also used in ``run(name)``.
    check : callable
        ``check(facts, **arguments)`` returns the program's arguments, or raises. They are checked nowhere else. It
        returns vertices as `Vertex`, and arguments with a number for each vertex as `VertexData`.
    run : callable
        The program: ``run(shard, **arguments)``, called on each rank.
    columns : mapping of str to str
        The columns that a result may have, the main one first, and their kinds: "value" for numbers; "vertex" for
        internal vertex ids, which users get as their own ids; "label" for places in `Shard.by_name`, which they get as
        their own ids too, -1 for none; "rows" for several rows of numbers, a number a vertex.
    scalars : tuple of str
        The names of the scalars that a result has.
    warm : callable
        ``warm(shard)`` compiles the kernels that `run` launches on a shard.
    result : callable, optional
        ``result(columns, info, names)`` makes what the method returns, in the user's process, from the columns, which
        are then arrays of any length: a list of one a rank for each name. ``names(ids)`` returns vertices as the user
        names them. None if the columns stay on the workers.
    maintain : callable, optional
        ``maintain(shard, **arguments)`` computes a result on each rank that can follow changes of the graph: a
        `Maintained`. None if results of this algorithm cannot be maintained.
    """

    name: str
    check: Callable[..., dict[str, Any]]
    run: Callable[..., Columns]
    columns: Mapping[str, str]
    scalars: tuple[str, ...]
    warm: Callable[[Shard], None]
    result: Callable[[dict[str, list[np.ndarray]], dict[str, Any], Names], Any] | None = None
    maintain: Callable[..., Maintained] | None = None

    def arguments(self, facts: GraphFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        """The program's arguments, by `check`; a `TypeError` for one that is missing or unknown names the method.

        An unknown one comes first: it may be a missing one, misspelled.
        """
        try:
            return self.check(facts, **given)
        except TypeError:
            signature = inspect.signature(self.check)
            try:
                signature.bind_partial(facts, **given)
                signature.bind(facts, **given)
            except TypeError as error:
                known = list(signature.parameters)[1:]
                meant = next((hint(name, known) for name in given if name not in known), "")
                raise TypeError(f"{self.name}: {error}{meant}") from None
            raise


# ---- results that follow the graph, on the workers -------------------------------------------------------------------


@dataclass(frozen=True)
class EdgeDelta:
    """The arcs that differ between two epochs, the same on every rank. An undirected edge is two arcs, one each way.

    Parameters
    ----------
    keys : uint64[k]
        ``src << 32 | dst``, in internal ids, ascending and unique.
    kinds : uint8[k]
        As the outcomes of a `mgraph.structures.Plan`: 1 inserted, 2 with another weight, 3 deleted.
    deleted : int
        The number of arcs that were deleted.
    old, new : float32[k] or None
        Weights at the earlier epoch and now, of arcs that were or are there. None in a graph without weights.
    """

    keys: Array
    kinds: Array
    deleted: int
    old: Array = None
    new: Array = None

    def __len__(self) -> int:
        return len(self.keys)

    def fields(self) -> dict[str, Any]:
        """The fields of the kernels' ``Changed``."""
        return {"keys": self.keys, "kinds": self.kinds, "old": self.old, "now": self.new, "n": len(self)}


@dataclass(frozen=True)
class ApplyResult:
    """What it took to bring a result up to date: the edges that were visited, and whether the result has changed."""

    edges: int
    changed: bool


@dataclass(frozen=True)
class Renumbering:
    """New internal ids of all vertices but some without edges, which were removed. The order of the others stays.

    Parameters
    ----------
    kept : int64[n_vertices]
        The ids before, in the order of the ids afterwards.
    rows : int64[hi - lo]
        The rows before of the own vertices: their ids before, less the first id that this rank owned.
    new : int64[n_vertices before]
        The id afterwards of each id before; -1 for removed vertices.
    """

    kept: Array
    rows: Array
    new: Array


class Maintained(Protocol):
    """One rank's part of a result that follows the graph, with what it needs for that; made for the graph as it is.

    Every rank makes the same calls. Between two calls of `apply_changes` only the rows of the changed arcs differ, and
    the number of vertices may have grown; ranges and internal ids are the same, or the result is made again.
    """

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Bring the result up to date with the shard's edges, which differ by `changes` from those of the last call.

        It may give up before the result is correct, and return None on every rank: where it would visit about `most`
        edges of the graph or more, and where going on is not possible. Then the result is made again.
        """
        ...

    def renumber(self, ids: Renumbering) -> bool:
        """Take over new internal ids, after a `follow` with all changes; the shard has them already.

        Another `follow` comes before `columns`. Makes no exchange. Return False if the result cannot go on, as where
        its source was removed; the same on every rank.
        """
        ...

    @property
    def takes_deletions(self) -> bool:
        """True if `apply_changes` can go on after deletions; if not, the result is computed again after one."""
        ...

    def columns(self) -> Columns:
        """The result, as the algorithm's `run` returns it. Later calls leave its arrays as they are."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        ...


# ---- the workers' side -----------------------------------------------------------------------------------------------


class Shard(Protocol):
    """One rank's part of a graph, as programs see it. Vertex ids are internal; this rank owns ``lo .. hi - 1``."""

    @property
    def rank(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def device(self) -> Device: ...  # noqa: D102
    @property
    def exchange(self) -> Exchange: ...  # noqa: D102
    @property
    def partition(self) -> Partition: ...  # noqa: D102
    @property
    def lo(self) -> int: ...  # noqa: D102
    @property
    def hi(self) -> int: ...  # noqa: D102
    @property
    def n_vertices(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> Array:
        """The internal id of each user's id, uint32[n_vertices] on the device; None if they are the same."""
        ...

    @property
    def by_name(self) -> Array:
        """The internal ids in the order of what users call the vertices, uint32[n_vertices]; None if they ascend.

        By its places programs name groups of vertices: columns of the kind "label". It is `order`, but with keys.
        """
        ...

    @property
    def out_edges(self) -> Structure:
        """The out-edges of the own vertices. Row ``src - lo`` holds the destinations, as ids of the whole graph."""
        ...

    @property
    def in_edges(self) -> Structure | None:
        """The in-edges of the own vertices. Row ``dst - lo`` holds the sources, as ids of the whole graph.

        `out_edges` itself in an undirected graph; None in a directed graph that does not store in-edges.
        """
        ...


def kernels(shard: Shard, file: str, view: View, **defines: int | str) -> Library:
    """The kernels of `file` for one of the shard's structures, compiled at the first call on each machine."""
    return load(shard.device, file, view, HUB_DEGREE=HUB_DEGREE, CHUNK_WORDS=CHUNK, **defines)


class _Edges(Protocol):
    @property
    def num_edges(self) -> int: ...


def task_room(rows: _Edges) -> int:
    """The largest number of tasks that the hubs among `rows` can be split into; 0 if no row can be a hub."""
    edges = rows.num_edges
    return 2 * edges // HUB_DEGREE if edges > HUB_DEGREE else 0


def incoming(shard: Shard, what: str) -> Structure:
    """The shard's in-edges; `InvalidOption`, naming `what` needs them, if the graph does not have them."""
    if shard.in_edges is None:
        raise InvalidOption(f"{what} needs in-edges; create the graph with reverse=True, or directed=False")
    return shard.in_edges
