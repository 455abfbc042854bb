"""Edge streams, the inputs of all commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.errors import InvalidOption

__all__ = ["COLUMNS", "EdgeStream"]

COLUMNS = ("src", "dst", "t", "op", "weight")


@dataclass(frozen=True, eq=False)
class EdgeStream:
    """Edge operations in stream order, checked by their reader or generator.

    Attributes
    ----------
    src, dst : uint32, shape (m,)
        Vertex ids, 0 .. n_vertices - 1; NumPy or CuPy, like the other columns.
    n_vertices : int
        The number of vertices; isolated ones count.
    t : int64 or float64, shape (m,), optional
        Times, in the data's unit.
    op : int8, shape (m,), optional
        +1 insert, -1 delete; by default all inserts.
    weight : float32, shape (m,), optional
        Edge weights.
    names : str, shape (n_vertices,), optional
        Name of each vertex.
    directed : bool
        In an undirected stream each edge stands for both directions.
    """

    src: Any
    dst: Any
    n_vertices: int
    t: Any = None
    op: Any = None
    weight: Any = None
    names: np.ndarray | None = None
    directed: bool = True

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        extra = "".join(f", {k}" for k in ("t", "op", "weight", "names") if getattr(self, k) is not None)
        kind = "directed" if self.directed else "undirected"
        return f"EdgeStream({len(self)} {kind} edges, {self.n_vertices} vertices{extra})"

    def __getitem__(self, part: Any) -> EdgeStream:
        """Return the part of a slice (no copy), an index array or a mask.

        Vertices and names stay.
        """
        columns = {name: v[part] for name in COLUMNS if (v := getattr(self, name)) is not None}
        return replace(self, **columns)

    def in_order(self) -> EdgeStream:
        """Return the stream sorted by time.

        Equal times keep their order, and so does a stream without times. O(m) if it is sorted, else O(m log m).
        """
        if self.t is None or len(self) < 2 or bool((self.t[1:] >= self.t[:-1]).all()):
            return self
        return self[np.argsort(self.t, kind="stable")]

    def batch(self) -> EdgeBatch:
        """Return all operations as an `EdgeBatch`, without a copy."""
        return EdgeBatch(self.src, self.dst, self.weight, self.op)

    def name(self, vertex: int) -> str:
        """Return the name of a vertex; its id in decimal if the stream has no names. O(1)."""
        return str(vertex) if self.names is None else str(self.names[vertex])

    def find(self, name: str) -> int:
        """Return the vertex of a name. O(n_vertices).

        Raises `InvalidOption` for an unknown name.
        """
        at = np.flatnonzero(self.names == name) if self.names is not None else np.empty(0, np.int64)
        if not len(at):
            raise InvalidOption(f"no vertex is named {name!r}; the names are case-sensitive")
        return int(at[0])
