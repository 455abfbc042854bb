"""The interface of an algorithm: its description for the client, the shard that its program sees, and its kernels.

An algorithm is a folder. `method.py` has the method that users call, the check of its arguments and the `Algorithm`.
`program.py` has the program that each rank runs in lockstep with the others. The kernels are in its ``.cuh`` files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.exchange import Exchange
from mgraph.kernels import Library, View, load
from mgraph.partition import Partition
from mgraph.structures import Structure

__all__ = [
    "CHUNK",
    "HUB_DEGREE",
    "LANES",
    "Algorithm",
    "Columns",
    "GraphFacts",
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
    """

    n_vertices: int
    directed: bool
    weighted: bool
    reverse: bool


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

    An array may have several rows, float64[k, n_vertices].

    The program gets the part of the own vertices, on the shard's device or in host memory.
    """

    values: Any


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
        internal vertex ids, which users get as their own ids; "rows" for several rows of numbers, a number a vertex.
    scalars : tuple of str
        The names of the scalars that a result has.
    warm : callable
        ``warm(shard)`` compiles the kernels that `run` launches on a shard.
    result : callable, optional
        ``result(columns, info)`` makes what the method returns, in the user's process, from the columns, which are then
        arrays of any length: a list of one a rank for each name. None if the columns stay on the workers.
    maintain : callable, optional
        Updates a result after changes of the graph; None if it has to be computed again.
    """

    name: str
    check: Callable[..., dict[str, Any]]
    run: Callable[..., Columns]
    columns: Mapping[str, str]
    scalars: tuple[str, ...]
    warm: Callable[[Shard], None]
    result: Callable[[dict[str, list[np.ndarray]], dict[str, Any]], Any] | None = None
    maintain: Callable[..., Columns] | None = None


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
    def out_edges(self) -> Structure:
        """The out-edges of the own vertices. Row ``src - lo`` holds the destinations, as ids of the whole graph."""
        ...

    @property
    def in_edges(self) -> Structure | None:
        """The in-edges of the own vertices. Row ``dst - lo`` holds the sources, as ids of the whole graph.

        `out_edges` itself in an undirected graph; None in a directed graph that does not store in-edges.
        """
        ...


def kernels(shard: Shard, file: str, view: View, **defines: int) -> Library:
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
