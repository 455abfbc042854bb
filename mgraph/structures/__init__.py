"""Local dynamic graph structures: one device, one contract. Usable alone, with no Dask."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.structures.contract import Structure
from mgraph.structures.csr import CsrStructure
from mgraph.structures.gpma import Gpma
from mgraph.structures.gpma_plus import GpmaPlus
from mgraph.structures.graphvine import GraphVine
from mgraph.structures.hornet import Hornet
from mgraph.structures.lpma import Lpma
from mgraph.structures.plan import Counts, Plan, VerticesPlan
from mgraph.structures.reads import Csr
from mgraph.structures.run import Run
from mgraph.structures.slabgraph import SlabGraph

__all__ = ["Counts", "Csr", "Plan", "Run", "Structure", "VerticesPlan", "create", "names", "parse"]

_STRUCTURES: dict[str, type[Structure]] = {
    s.name: s for s in (GpmaPlus, Lpma, Gpma, GraphVine, SlabGraph, Hornet, CsrStructure)
}


def names() -> list[str]:
    """The names of all structures, the default first."""
    return list(_STRUCTURES)


def parse(structure: str) -> tuple[type[Structure], dict[str, int | float | str]]:
    """The class and the options of ``NAME`` or ``NAME:OPTION=VALUE:...``; a value is a number, or a word.

    Raises `InvalidOption` where there is no such name or option, or where the number is not whole and has to be.

    Examples
    --------
    >>> parse("slabgraph:slab=32:limit=1.5")
    (<class 'mgraph.structures.slabgraph.structure.SlabGraph'>, {'slab': 32, 'limit': 1.5})
    """
    if not isinstance(structure, str):
        raise InvalidOption(f"structure {structure!r} is no name")
    name, *given = structure.split(":")
    if name not in _STRUCTURES:
        raise InvalidOption(f"structure {name!r} is none of {', '.join(map(repr, _STRUCTURES))}")
    known = {option: kind for option, kind in _options(name).items() if "tuple" not in kind}
    options: dict[str, int | float | str] = {}
    for text in given:
        option, _, value = text.partition("=")
        if option not in known:
            there = f"its options are {', '.join(map(repr, known))}" if known else "it has none"
            raise InvalidOption(f"{name} has no option {option!r}; {there}")
        if option in options:
            raise InvalidOption(f"structure {structure!r} has the option {option!r} twice")
        try:
            options[option] = value if known[option] == "str" else _number(value)
        except ValueError:
            raise InvalidOption(f"option {text!r} of {name}: {value!r} is no number") from None
    _check_whole(name, options)
    return _STRUCTURES[name], options


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _options(name: str) -> dict[str, str]:
    """A structure's options and their types."""
    parameters = signature(_STRUCTURES[name]).parameters.values()
    return {p.name: p.annotation for p in parameters if p.kind == Parameter.KEYWORD_ONLY}


def _check_whole(name: str, options: Mapping[str, Any]) -> None:
    kinds = _options(name)
    for option, value in options.items():
        if isinstance(value, float) and "float" not in kinds.get(option, "float"):
            raise InvalidOption(f"option {option} of {name} is {value}; a whole number is needed")


def create(
    name: str,
    n_vertices: int,
    *,
    device: Device | str = "cpu",
    weighted: bool = False,
    n_rows: int | None = None,
    **options: Any,
) -> Structure:
    """An empty structure.

    Parameters
    ----------
    name : str
        One of `names()`, alone or with options as `parse` takes them.
    n_vertices : int
        Vertices 0 .. n_vertices - 1.
    device : Device or "cpu" | "cuda" | "cuda:INDEX"
        A `Device` can `reserve` memory beforehand, so that no batch waits for an allocation.
    weighted : bool
    n_rows : int, optional
        Where this is one range of a larger graph: how many rows it has.
    options
        The structure's own; see its class.

    Examples
    --------
    >>> from mgraph import EdgeBatch
    >>> s = create("gpma+", n_vertices=1000)
    >>> s.insert(EdgeBatch([1, 2], [3, 4])).inserted
    2
    """
    kind, given = parse(name)
    _check_whole(kind.name, options)
    rows = n_vertices if n_rows is None else n_rows
    return kind(rows, n_vertices, Device.of(device), weighted, **{**given, **options})
