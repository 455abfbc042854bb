"""What an algorithm sees of a shard, and how its kernels are compiled. A program runs on all ranks in lockstep."""

from __future__ import annotations

import operator
from typing import Any, Protocol

from mgraph.device import Device
from mgraph.errors import InvalidOption, UnknownVertex
from mgraph.exchange import Exchange
from mgraph.kernels import Library, View, load
from mgraph.partition import Partition
from mgraph.structures import Structure

__all__ = [
    "CHUNK",
    "HUB_DEGREE",
    "LANES",
    "Result",
    "Shard",
    "check_vertex",
    "incoming",
    "kernels",
    "task_room",
]

HUB_DEGREE = 1024  #: a row of more edges is cut into tasks of about as many, for any tile to take
CHUNK = 128  #: words of a bitmap that one tile compacts: enough to share a counter with few, few enough to go round
LANES = 32  #: rows that a tile takes at once, and vertices of a bitmap's word

#: A local array, one entry an owned vertex, or several by name, the main one first; and what else a program found out.
Result = tuple[Any, dict[str, Any]]


class Shard(Protocol):
    """One rank's part of a graph. Vertex ids are internal: this rank owns ``lo .. hi - 1``."""

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
    def out_edges(self) -> Structure:
        """Rows are local sources ``src - lo``, slots hold global destinations."""
        ...

    @property
    def in_edges(self) -> Structure | None:
        """Rows are local destinations, slots hold global sources; `out_edges` itself where the graph is undirected."""
        ...


def kernels(shard: Shard, file: str, view: View, **defines: int) -> Library:
    """The kernels of `file` for one of the shard's structures, compiled at the first call on a machine."""
    return load(shard.device, file, view, HUB_DEGREE=HUB_DEGREE, CHUNK_WORDS=CHUNK, **defines)


class _Edges(Protocol):
    @property
    def num_edges(self) -> int: ...


def task_room(rows: _Edges) -> int:
    """The most tasks that the hubs among rows can be cut into; 0 where no row can be a hub."""
    edges = rows.num_edges
    return 2 * edges // HUB_DEGREE if edges > HUB_DEGREE else 0


def incoming(shard: Shard, what: str) -> Structure:
    """The shard's in-edges; `InvalidOption` where they are not kept."""
    if shard.in_edges is None:
        raise InvalidOption(f"{what} needs in-edges; create the graph with reverse=True, or directed=False")
    return shard.in_edges


def check_vertex(vertex: Any, n_vertices: int, name: str) -> int:
    """`vertex` as an int.

    Raises
    ------
    InvalidOption
        No whole number.
    UnknownVertex
        Outside ``0 .. n_vertices - 1``.
    """
    try:
        value = operator.index(vertex)
    except TypeError:
        raise InvalidOption(f"{name} is {vertex!r}; a vertex is a whole number") from None
    if not 0 <= value < n_vertices:
        raise UnknownVertex(f"{name} is {value}; the graph has {n_vertices} vertices, 0 to {n_vertices - 1}")
    return value
