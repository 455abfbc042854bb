"""Interface of an algorithm: its description for the client, the shard of its program, and its kernels.

An algorithm consists of a method that users call, a check of its arguments, a program that all ranks run in lockstep,
and the `Algorithm`. All are in one module, or in a folder: `method.py`, `program.py` and the kernels.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from mgraph.checks import check_vertex, check_vertices
from mgraph.device import Array, Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError
from mgraph.exchange import Exchange
from mgraph.facade import hint
from mgraph.kernels import Library, View, load
from mgraph.partition import Partition
from mgraph.structures import Csr, Structure
from mgraph.structures.contract import HUB_DEGREE
from mgraph.tables.arrays import is_one, shown

__all__ = [
    "HUB_DEGREE",
    "LANES",
    "Algorithm",
    "ApplyResult",
    "Columns",
    "EdgeDelta",
    "GraphFacts",
    "Maintained",
    "Memory",
    "Names",
    "Remembering",
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

LANES = 32  #: rows per tile

#: Result of a program: columns by name, the main one first, each with an entry per owned vertex, in internal order on
#: the shard's device; and scalars by name, equal on every rank.
Columns = tuple[dict[str, Any], dict[str, Any]]

#: ``names(ids)``: the vertices of users' ids, as the user names them
Names = Callable[[np.ndarray], np.ndarray]

Result_co = TypeVar("Result_co", covariant=True)


# ---- the user's side -------------------------------------------------------------------------------------------------


class Runs(Protocol[Result_co]):
    """A graph that runs algorithms by name: the object of a method."""

    def run(self, algorithm: str, /, **arguments: Any) -> Result_co:
        """Check the arguments, run the algorithm on all ranks, and return its result."""
        ...


@dataclass(frozen=True)
class GraphFacts:
    """Properties of a graph that the check of an algorithm's arguments may use.

    Parameters
    ----------
    n_vertices : int
    directed, weighted : bool
    reverse : bool
        True if the graph has in-edges: stored with ``reverse=True``, or those of an undirected graph.
    times : str, optional
        The dtype of the edges' times, "int64" or a datetime64 with its unit. None without times.
    ids : callable, optional
        In a graph with keys, ``ids(keys, name)`` returns the vertices' ids.
    """

    n_vertices: int
    directed: bool
    weighted: bool
    reverse: bool
    ids: Callable[[Any, str], np.ndarray] | None = None
    times: str | None = None

    def vertex(self, value: Any, name: str) -> int:
        """Return the id of a vertex that the user names. Raises the errors of `check_vertex`."""
        if not isinstance(value, int | str) and not is_one(value):
            several = "; multi_source_bfs and distances take several" if name == "source" else ""
            raise InvalidOption(f"{name} is a {type(value).__name__}; it must be one vertex{several}")
        if self.ids is None:
            return check_vertex(value, self.n_vertices, name)
        try:
            return int(self.vertices([value], name)[0])
        except MgraphError as error:
            raise type(error)(str(error).replace(f"{name}[0]", name, 1)) from None

    def vertices(self, values: Any, name: str) -> np.ndarray:
        """Return the ids of vertices that the user names: uint32[k], k > 0. Raises the errors of `check_vertices`."""
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
        """Raise `InvalidOption` if `ids`, the ids of `values`, repeat a vertex. The message names the place."""
        if len(distinct(ids)) < len(ids):
            _, first = np.unique(ids, return_index=True)
            again = int(np.setdiff1d(np.arange(len(ids)), first)[0])
            twice = ids[again] if self.ids is None else shown(list(values)[again])
            raise InvalidOption(f"{name}[{again}] is {twice}, which comes before; {what} must be different")


@dataclass(frozen=True)
class Vertex:
    """A vertex as an argument. `id` is the user's id; the program gets the internal id."""

    id: int


@dataclass(frozen=True)
class Vertices:
    """An array of vertices as an argument. `ids` are users' ids, uint32[k]; the program gets internal ids."""

    ids: np.ndarray


@dataclass(frozen=True)
class VertexData:
    """A number per vertex as an argument: an array by users' ids, or an earlier result.

    With `rows` it has several rows, float64[k, n_vertices], or results among a list of rows. Vertices past the end of
    an array, those without a value in a Series, and those that a result does not have get the mean of the values, or 0
    if `missing` is "zero". The program gets the numbers of its own vertices, on the shard's device or in host memory.
    `name` is the user's name of the argument, if the program has another.
    """

    values: Any
    rows: bool = False
    name: str | None = None
    missing: str = "mean"


@dataclass(frozen=True)
class Algorithm:
    """Description of an algorithm for the client, the workers and the documentation.

    Parameters
    ----------
    name : str
        The name of the method, and of ``run(name)``.
    check : callable
        ``check(facts, **arguments)`` returns the program's arguments, or raises. It is the only check. It returns
        vertices as `Vertex`, and numbers per vertex as `VertexData`.
    run : callable
        The program: ``run(shard, **arguments)``, called on each rank.
    columns : mapping of str to str
        Possible columns of a result, the main one first, and their kinds: "value" for numbers; "vertex" for internal
        vertex ids, which users get as their own ids; "label" for places in `Shard.by_name`, which users get as their
        own ids too, -1 for none; "rows" for several rows of numbers, with a number per vertex each.
    scalars : tuple of str
        The names of a result's scalars.
    warm : callable
        ``warm(shard)`` compiles the kernels that `run` launches on a shard.
    result : callable, optional
        ``result(columns, info, names)`` makes the method's return value in the user's process. The columns are then
        arrays of any length, which may be read-only: a list with an array per rank for each name. ``names(ids)``
        returns vertices as the user names them. None if the columns stay on the workers.
    maintain : callable, optional
        ``maintain(shard, **arguments)`` computes a result on each rank that can apply changes of the graph: a
        `Maintained`. None if results of this algorithm cannot be maintained.
    memory : callable, optional
        ``memory(first_name)`` makes a `Memory`, what outlives the results of `maintain`, its second argument then.
        Such a result depends on the updates before it, so only counts of arcs decide whether it is updated, never
        times, and it survives moves of ranges and new orders. None for a result that depends on the graph alone.
    """

    name: str
    check: Callable[..., dict[str, Any]]
    run: Callable[..., Columns]
    columns: Mapping[str, str]
    scalars: tuple[str, ...]
    warm: Callable[[Shard], None]
    result: Callable[[dict[str, list[np.ndarray]], dict[str, Any], Names], Any] | None = None
    maintain: Callable[..., Maintained] | None = None
    memory: Callable[[int], Memory] | None = None

    def arguments(self, facts: GraphFacts, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check the user's arguments and return the program's.

        A `TypeError` for a missing or unknown argument names the method. An unknown argument is reported first: it may
        be a misspelled one that is missing.
        """
        # On a wrong signature, raise an error that names the method and the meant argument.
        try:
            return self.check(facts, **arguments)
        except TypeError:
            signature = inspect.signature(self.check)
            try:
                signature.bind_partial(facts, **arguments)
                signature.bind(facts, **arguments)
            except TypeError as error:
                names = list(signature.parameters)[1:]
                meant = next((hint(name, names) for name in arguments if name not in names), "")
                raise TypeError(f"{self.name}: {error}{meant}") from None
            raise


# ---- results that follow the graph, on the workers -------------------------------------------------------------------


@dataclass(frozen=True)
class EdgeDelta:
    """Arcs that differ between two epochs: those of a rank, or of all ranks. An undirected edge is two arcs.

    Parameters
    ----------
    keys : uint64[k]
        ``src << 32 | dst``, in internal ids, ascending and unique.
    kinds : uint8[k]
        Outcomes of a `mgraph.structures.Plan`: 1 inserted, 2 with another weight, 3 deleted.
    deleted : int
        The number of deleted arcs.
    old, new : float32[k] or None
        Weights at the earlier epoch and now, for arcs that existed then or exist now. None in an unweighted graph.
    """

    keys: Array
    kinds: Array
    deleted: int
    old: Array = None
    new: Array = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(a.nbytes) for a in (self.keys, self.kinds, self.old, self.new) if a is not None)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the kernels' ``EdgeDelta``."""
        return {"keys": self.keys, "kinds": self.kinds, "old": self.old, "now": self.new, "n": len(self)}


@dataclass(frozen=True)
class ApplyResult:
    """Cost and outcome of an update of a result.

    Attributes
    ----------
    edges : int
        The visited edges.
    changed : bool
        True if the result has changed.
    how : "updated" | "gave up" | "anew" | "iterated" | "iterated after a try"
        "gave up" if the result must be computed anew; "anew" if the update has done so. "iterated" if the update
        iterated over all edges: at once, or after it had given up to look at single ones.
    preparation : float
        The seconds of this rank for arrays that later updates need, too, and for iterations after a try.
    tried : int
        The visited edges of a try before iterations.
    """

    edges: int
    changed: bool
    how: Literal["updated", "gave up", "anew", "iterated", "iterated after a try"] = "updated"
    preparation: float = 0.0
    tried: int = 0


@dataclass(frozen=True)
class Renumbering:
    """New internal ids after the removal of some vertices without edges. The order of the others stays.

    Parameters
    ----------
    kept : int64[n_vertices]
        The old ids, in the order of the new ids.
    rows : int64[hi - lo]
        The old rows of the own vertices: their old ids, less the first old id of this rank.
    new : int64[n_vertices before]
        The new id of each old id; -1 for removed vertices.
    """

    kept: Array
    rows: Array
    new: Array


class Memory(Protocol):
    """State of a maintained result that outlives its computation, equal on every rank.

    Attributes
    ----------
    next : int
        The first name that was never used.
    read : int or None
        The epoch of the last read; None before the first, and after one that failed.
    resumed : bool
        True before the first read after a store was opened, which had this state.
    passed : dict
        The changes at the last `Maintained.columns` in arrays, which rank 0 sends to the user's process.
    """

    next: int
    read: int | None
    resumed: bool
    passed: dict[str, np.ndarray]

    def saved(self) -> dict[str, Any]:
        """Return the state as plain values and copies in host memory, for `resume`."""
        ...

    def resume(self, saved: Mapping[str, Any], lost: bool) -> None:
        """Take up a `saved` state, in host memory. With `lost`, reads after it may have been lost."""
        ...

    def move_to(self, device: Device) -> None:
        """Move the arrays to the memory of `device`."""
        ...

    def remove(self, device: Device, ids: np.ndarray) -> None:
        """Adopt the removal of users' `ids`, whose vertices leave the graph. Later ids move up."""
        ...


class Maintained(ABC):
    """A rank's part of a maintained result, with its state; created for the current graph.

    Every rank makes the same calls. Between two calls of `apply_changes` only the rows of the changed arcs differ, and
    the number of vertices may have grown. After any other change of ranges or internal ids the result is created anew,
    but not one with a `Memory`, which follows them itself.

    Attributes
    ----------
    iterates : bool
        True if `apply_changes` can iterate from the last values over all edges, in place of a full computation.
    """

    iterates: ClassVar[bool] = False

    def prepare(self) -> None:  # noqa: B027
        """Load and compute what only updates need, if anything. Called once, after the result is first computed.

        Later computations leave it to the updates: batches may be so large that there are none.
        """

    @abstractmethod
    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Apply `changes`, the difference between the shard's edges now and at the last call.

        It may give up before the result is correct, and say so on every rank, or return None: if it would visit about
        `most` edges of the graph or more, or has visited half as many without knowing how many will follow, or if it
        cannot go on. Then the result is computed anew. `most` is 0 for a result that `iterates`, and is to do so at
        once.
        """

    @abstractmethod
    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids, after an `apply_changes` with all changes. The shard has them already.

        Another `apply_changes` comes before `columns`. Makes no exchange. Returns False if the result cannot go on, for
        example if its source was removed; equal on every rank.
        """

    @abstractmethod
    def columns(self) -> Columns:
        """Return the result in the form of the algorithm's `run`. Later calls do not change its arrays."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of device memory."""


class Remembering(Maintained):
    """A maintained result with a `Memory`, which survives a new order of the vertices."""

    @abstractmethod
    def adopt_order(self) -> None:
        """Adopt the internal ids of the shard, if they are new. Makes no exchange.

        Comes before `columns` and before the next removal of vertices; `apply_changes` does the same.
        """


# ---- the workers' side -----------------------------------------------------------------------------------------------


class Shard(Protocol):
    """A rank's part of a graph, for programs. Vertex ids are internal; this rank owns ``lo .. hi - 1``."""

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
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> Array:
        """The internal id of each user's id, uint32[n_vertices] on the device; None if they are equal."""
        ...

    @property
    def names(self) -> Array:
        """The user's id of each internal id, uint32[n_vertices] on the device; None if they are equal.

        O(n_vertices) after a new order; then it is kept.
        """
        ...

    @property
    def by_name(self) -> Array:
        """The internal ids in the order of users' names, uint32[n_vertices]; None if they ascend.

        Programs use its places as names of groups of vertices: columns of the kind "label". Without keys it equals
        `order`.
        """
        ...

    def times_of(self, csr: Csr, rows: Array, direction: str) -> Array:
        """Return the time of each arc of `rows` of the "out" or "in" edges, None for all, in a graph with times."""
        ...

    @property
    def out_edges(self) -> Structure:
        """The out-edges of the own vertices. Row ``src - lo`` holds the destinations, as ids of the whole graph."""
        ...

    @property
    def in_edges(self) -> Structure | None:
        """The in-edges of the own vertices. Row ``dst - lo`` holds the sources, as ids of the whole graph.

        It is `out_edges` in an undirected graph, and None in a directed graph without stored in-edges.
        """
        ...


def kernels(shard: Shard, file: str, view: View, **defines: int | str) -> Library:
    """Return the kernels of `file` for a structure of the shard. The first call on a machine compiles them."""
    return load(shard.device, file, view, HUB_DEGREE=HUB_DEGREE, **defines)


class _Edges(Protocol):
    @property
    def num_edges(self) -> int: ...


def task_room(rows: _Edges) -> int:
    """Return the largest number of tasks of the hubs among `rows`; 0 if no row can be a hub."""
    edges = rows.num_edges
    return 2 * edges // HUB_DEGREE if edges > HUB_DEGREE else 0


def incoming(shard: Shard, what: str) -> Structure:
    """Return the shard's in-edges. Raises `InvalidOption`, naming `what`, if the graph has none."""
    if shard.in_edges is None:
        raise InvalidOption(f"{what} needs in-edges; create the graph with reverse=True, or directed=False")
    return shard.in_edges
