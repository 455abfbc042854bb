"""Graphs in LDBC Graphalytics' files: vertices (.v), edges (.e), properties (.properties), and algorithms' output.

References
----------
A. Iosup et al., "The LDBC Graphalytics Benchmark", arXiv:2011.15028, sections 2.2.2 and 2.4.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption, ReadError

__all__ = ["INFINITE", "Dataset", "read", "read_output", "write", "write_output"]

INFINITE = np.iinfo(np.int64).max  #: infinity among whole numbers


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph without self-loops and repeated edges.

    Attributes
    ----------
    name : str
    ids : int64[n]
        The vertices, ascending; any numbers.
    src, dst : uint32[m]
        Places in `ids`. For an undirected edge, `src` is the smaller.
    weight : float64[m] or None
    directed : bool
    parameters : mapping of str to str
        Parameters of the algorithms, such as "bfs.source-vertex".
    """

    name: str
    ids: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None
    directed: bool
    parameters: Mapping[str, str] = field(default_factory=dict)

    def parameter(self, name: str, kind: type) -> Any:
        """Return a parameter as a number.

        Raises `InvalidOption` if it is missing or no number.
        """
        try:
            return kind(self.parameters[name])
        except KeyError:
            raise InvalidOption(f"graph {self.name} has no parameter {name}") from None
        except ValueError:
            raise InvalidOption(f"graph {self.name}: {name} is {self.parameters[name]!r}, and no number") from None

    def place(self, vertex: int) -> int:
        """Return the place of a vertex in `ids`.

        Raises `InvalidOption` for an unknown one.
        """
        at = int(np.searchsorted(self.ids, vertex))
        if at == len(self.ids) or int(self.ids[at]) != vertex:
            raise InvalidOption(f"graph {self.name} has no vertex {vertex}")
        return at


def read(path: Path) -> Dataset:
    """Read the graph of a ``NAME.properties``; its other files lie beside it.

    Raises
    ------
    ReadError
        A file is missing or malformed: vertices do not ascend; an edge names an unknown vertex, is a self-loop, or has
        no weight; or the numbers differ from the properties.
    """
    # Find the graph's name and its own properties.
    properties = _properties(path)
    names = {key.split(".")[1] for key in properties if key.startswith("graph.") and key.count(".") > 1}
    if len(names) != 1:
        raise ReadError(f"{path}: the properties of one graph are needed, as graph.NAME.directed = true")
    (name,) = names
    own = {key.removeprefix(f"graph.{name}."): value for key, value in properties.items()}
    directed = own.get("directed", "").lower()
    if directed not in ("true", "false"):
        raise ReadError(f"{path}: graph.{name}.directed is {directed!r}; true or false is needed")

    # Read the vertices.
    ids = _table(path.parent / own.get("vertex-file", f"{name}.v"), ["id"])["id"]
    if (ids[1:] <= ids[:-1]).any():
        at = int((ids[1:] <= ids[:-1]).argmax())
        raise ReadError(f"{path}: vertex {ids[at + 1]} follows {ids[at]}; vertices must ascend")

    # Read the edges.
    weighted = bool(own.get("edge-properties.names"))
    edge_file = path.parent / own.get("edge-file", f"{name}.e")
    edges = _table(edge_file, ["src", "dst", *(["weight"] if weighted else [])])
    for what, count in (("vertices", len(ids)), ("edges", len(edges))):
        if own.get(f"meta.{what}", str(count)) != str(count):
            raise ReadError(f"{path}: meta.{what} is {own[f'meta.{what}']}, and there are {count}")

    # Check the ends.
    src, dst = (_places(edge_file, ids, edges[end]) for end in ("src", "dst"))
    loops = src == dst
    if loops.any():
        raise ReadError(f"{edge_file}: line {int(loops.argmax()) + 1} is a self-loop")
    weight = edges["weight"].copy() if weighted else None
    return Dataset(name, ids, src, dst, weight, directed == "true", own)


def write(dataset: Dataset, folder: Path) -> Path:
    """Write the three files into a folder, created if needed.

    Returns the path of the properties. O(bytes).
    """
    # Vertices and sorted edges.
    folder.mkdir(parents=True, exist_ok=True)
    name, weighted = dataset.name, dataset.weight is not None
    np.savetxt(folder / f"{name}.v", dataset.ids, "%d")
    order = np.lexsort((dataset.dst, dataset.src))
    ends = dataset.ids[dataset.src[order]], dataset.ids[dataset.dst[order]]
    kinds = [("src", np.int64), ("dst", np.int64), *([("weight", np.float64)] if weighted else [])]
    rows = np.empty(len(order), kinds)
    rows["src"], rows["dst"] = ends
    if dataset.weight is not None:
        rows["weight"] = dataset.weight[order]
    np.savetxt(folder / f"{name}.e", rows, "%d %d %.17g" if weighted else "%d %d")

    # Properties.
    own: dict[str, Any] = {"vertex-file": f"{name}.v", "edge-file": f"{name}.e"}
    own |= {"meta.vertices": len(dataset.ids), "meta.edges": len(dataset.src)}
    own["directed"] = str(dataset.directed).lower()
    if weighted:
        own |= {"edge-properties.names": "weight", "edge-properties.types": "real"}
    path = folder / f"{name}.properties"
    path.write_text("".join(f"graph.{name}.{key} = {value}\n" for key, value in {**dataset.parameters, **own}.items()))
    return path


def read_output(path: Path, ids: np.ndarray, real: bool) -> np.ndarray:
    """Read an algorithm's values of `ids` from a file of lines "id value": float64 if `real`, else int64."""
    rows = _table(path, ["id", "weight" if real else "value"])
    order = np.argsort(rows["id"])
    if not np.array_equal(rows["id"][order], ids):
        raise ReadError(f"{path} has values of {len(rows)} vertices, which are not the graph's {len(ids)}")
    return rows["weight" if real else "value"][order]


def write_output(path: Path, ids: np.ndarray, values: np.ndarray) -> None:
    """Write lines "id value", real values with 15 digits after the point."""
    kind, text = (np.float64, "%d %.15e") if values.dtype.kind == "f" else (np.int64, "%d %d")
    rows = np.empty(len(ids), [("id", np.int64), ("value", kind)])
    rows["id"], rows["value"] = ids, values
    np.savetxt(path, rows, text)


def _properties(path: Path) -> dict[str, str]:
    """Return the pairs ``key = value`` of a file. Lines with # are comments."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"{path}: {error}") from None
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _table(path: Path, columns: list[str]) -> Any:
    """Read a text file's columns, by name.

    "weight" is float64, all others int64.
    """
    kinds = [(name, np.float64 if name == "weight" else np.int64) for name in columns]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file
            return np.atleast_1d(np.loadtxt(path, kinds, comments=None, usecols=range(len(columns))))
    except (OSError, ValueError) as error:
        raise ReadError(f"{path}: {error}") from None


def _places(path: Path, ids: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the places of an edge file's ends among the vertices."""
    at = np.minimum(np.searchsorted(ids, ends), len(ids) - 1)
    unknown = ids[at] != ends if len(ids) else np.ones(len(ends), bool)
    if unknown.any():
        line = int(unknown.argmax())
        raise ReadError(f"{path}: line {line + 1} names vertex {ends[line]}, which is not in the vertex file")
    return at.astype(np.uint32)
