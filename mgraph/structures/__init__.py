"""Local dynamic graph structures: one device, one contract. Usable alone, without Dask."""

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
    """Return the names of all structures, the default first."""
    return list(_STRUCTURES)


def parse(structure: str) -> tuple[type[Structure], dict[str, int | float | str]]:
    """Return the class and the options of ``NAME`` or ``NAME:OPTION=VALUE:...``.

    A value is a number or a word. Raises `InvalidOption` for an unknown name or option, or a number that must be whole.

    Examples
    --------
    >>> parse("slabgraph:slab=32:limit=1.5")
    (<class 'mgraph.structures.slabgraph.structure.SlabGraph'>, {'slab': 32, 'limit': 1.5})
    """
    if not isinstance(structure, str):
        raise InvalidOption(f"structure {structure!r} is no name")
    name, *settings = structure.split(":")
    if name not in _STRUCTURES:
        raise InvalidOption(f"structure {name!r} is none of {', '.join(map(repr, _STRUCTURES))}")

    # Options with two bounds cannot be given by name.
    kinds = {option: kind for option, kind in _options(name).items() if "tuple" not in kind}
    options: dict[str, int | float | str] = {}
    for text in settings:
        option, _, value = text.partition("=")
        if option not in kinds:
            choices = f"its options are {', '.join(map(repr, kinds))}" if kinds else "it has none"
            raise InvalidOption(f"{name} has no option {option!r}; {choices}")
        if option in options:
            raise InvalidOption(f"structure {structure!r} has the option {option!r} twice")
        try:
            options[option] = value if kinds[option] == "str" else _number(value)
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
    """Return a structure's options and their types."""
    parameters = signature(_STRUCTURES[name]).parameters.values()
    return {p.name: p.annotation for p in parameters if p.kind == Parameter.KEYWORD_ONLY}


def _check_whole(name: str, options: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` for a fraction where an option needs a whole number."""
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
    """Return an empty structure.

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
        The number of rows, if this is one range of a larger graph.
    options
        The options of the structure's class.

    Examples
    --------
    >>> from mgraph import EdgeBatch
    >>> s = create("gpma+", n_vertices=1000)
    >>> s.insert(EdgeBatch([1, 2], [3, 4])).inserted
    2
    """
    kind, settings = parse(name)
    _check_whole(kind.name, options)
    rows = n_vertices if n_rows is None else n_rows
    return kind(rows, n_vertices, Device.of(device), weighted, **{**settings, **options})
