"""Local dynamic graph structures: one device, one contract. Usable alone, with no Dask."""

from __future__ import annotations

from typing import Any

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.structures.contract import Counts, Csr, Plan, Structure
from mgraph.structures.csr import CsrStructure
from mgraph.structures.gpma_plus import GpmaPlus
from mgraph.structures.graphvine import GraphVine
from mgraph.structures.run import Run
from mgraph.structures.slabgraph import SlabGraph

__all__ = ["Counts", "Csr", "Plan", "Run", "Structure", "create", "names"]

_STRUCTURES: dict[str, type[Structure]] = {s.name: s for s in (GpmaPlus, GraphVine, SlabGraph, CsrStructure)}


def names() -> list[str]:
    """The structures there are, the default first."""
    return list(_STRUCTURES)


def create(
    name: str,
    n_vertices: int,
    *,
    device: Device | str = "cpu",
    weighted: bool = False,
    n_rows: int | None = None,
    reserve: int = 0,
    **options: Any,
) -> Structure:
    """An empty structure.

    Parameters
    ----------
    name : str
        One of `names()`.
    n_vertices : int
        Vertices 0 .. n_vertices - 1.
    device : Device or "cpu" | "cuda" | "cuda:INDEX"
    weighted : bool
    n_rows : int, optional
        Where this is one range of a larger graph: how many rows it has.
    reserve : int
        Bytes of GPU memory to take now, so that no batch waits for an allocation; see `Device.reserve`.
    options
        The structure's own; see its class.

    Examples
    --------
    >>> from mgraph import EdgeBatch
    >>> s = create("gpma+", n_vertices=1000)
    >>> s.insert(EdgeBatch([1, 2], [3, 4])).inserted
    2
    """
    if name not in _STRUCTURES:
        raise InvalidOption(f"structure {name!r} is none of {', '.join(map(repr, _STRUCTURES))}")
    where = Device.of(device)
    where.reserve(reserve)
    return _STRUCTURES[name](n_vertices if n_rows is None else n_rows, n_vertices, where, weighted, **options)
