"""Contents of a file in a format of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["GraphFile"]


@dataclass(frozen=True)
class GraphFile:
    """Edges and facts read from a graph's file.

    Parameters
    ----------
    columns : dict
        The columns src, dst and maybe weight and time; the ends are ids from 0 where `n_vertices` is given.
    labels : dict
        The columns' names in messages.
    directed : bool, optional
        As stated in the file; None if it is not.
    n_vertices : int, optional
        The number of vertices, where the file numbers them.
    vertices : list, optional
        The names of all vertices, where the file lists them.
    """

    columns: dict[str, Any]
    labels: dict[str, str]
    directed: bool | None = None
    n_vertices: int | None = None
    vertices: Any = None
