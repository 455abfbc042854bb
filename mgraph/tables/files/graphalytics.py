"""Read LDBC Graphalytics (EVLP): ``NAME.e``, optionally with ``NAME.v`` and ``NAME.properties``.

References
----------
A. Iosup et al., "The LDBC Graphalytics Benchmark", arXiv:2011.15028, section 2.2.2.
"""

from __future__ import annotations

import os
from typing import Any

from mgraph.errors import ReadError
from mgraph.facade import warn
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.files.opening import COMPRESSED, body_of
from mgraph.tables.files.text import columns_in_head, edge_list

__all__ = ["evlp"]


def evlp(file: str, weight: Any, keys: str | None, weighted: bool) -> GraphFile:
    """Return the graph of the files with the name of `file`. O(bytes)."""
    # Find the files of edges and vertices, which the properties may name.
    own = _properties(_beside(file, ".properties"))
    folder = os.path.dirname(file)
    parts = {
        kind: os.path.join(folder, own[f"{kind}-file"]) if f"{kind}-file" in own else _beside(file, suffix)
        for kind, suffix in (("vertex", ".v"), ("edge", ".e"))
    }
    if parts["edge"] is None:
        raise ReadError("there is no file of edges beside it, which ends in .e")
    # Read the edges.
    place = _weight_column(own, weight) if weighted else None
    if weighted and place is None and len(columns_in_head(parts["edge"], " ")[0]) > 2:
        warn("column 2 of the edges was not used: weight=2 reads it as the weights")
    wanted = {"src": 0, "dst": 1} | ({} if place is None else {"weight": place})
    table = edge_list(parts["edge"], [*wanted.values()], keys, " ")
    columns = {name: table.column(str(at)) for name, at in wanted.items()}
    labels = {name: f"column '{at}'" for name, at in wanted.items()}
    # Read the vertices, if they are listed.
    vertices = None
    if parts["vertex"] is not None:
        listed = edge_list(parts["vertex"], (0,), keys, " ")
        vertices = listed.column("0")
    return GraphFile(columns, labels, own.get("directed", "true").lower() != "false", vertices=vertices)


def _weight_column(own: dict[str, str], weight: Any) -> int | None:
    """Return the index of the weight column: of the property `weight`, else of the first property, if any."""
    names = [name.strip() for name in own.get("edge-properties.names", "").split(",") if name.strip()]
    if weight is None:
        return 2 if names else None
    if isinstance(weight, int):
        return weight
    if weight not in names:
        raise ReadError(f"the edges have no property {weight!r}; they have {', '.join(map(repr, names)) or 'none'}")
    return 2 + names.index(weight)


def _beside(file: str, suffix: str) -> str | None:
    """Return the file of the same name with `suffix`, compressed or not; None if it does not exist."""
    stem, last = os.path.splitext(file)
    stem = os.path.splitext(stem)[0] if last.lower() in COMPRESSED else stem
    return next((stem + suffix + more for more in ("", *COMPRESSED) if os.path.exists(stem + suffix + more)), None)


def _properties(file: str | None) -> dict[str, str]:
    """Return the properties of the graph, without the prefix ``graph.NAME.``.

    A # begins a comment.
    """
    lines = [] if file is None else body_of(file).decode().splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    listed = {key.strip(): value.strip() for key, _, value in pairs}
    names = {key.split(".")[1] for key in listed if key.startswith("graph.") and key.count(".") > 1}
    if len(names) > 1:
        raise ReadError(f"{file} has the properties of several graphs: {', '.join(sorted(names))}")
    return {key.removeprefix(f"graph.{name}."): value for name in names for key, value in listed.items()}
