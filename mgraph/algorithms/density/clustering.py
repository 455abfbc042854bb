"""Local clustering coefficients, from the triangles at each vertex (`density.triangles`)."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard
from mgraph.algorithms.density.triangles.program import COUNTING, corners, load_kernels, warm
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "DEFINITIONS", "clustering", "run", "warm"]

#: the amount that a triangle adds to each of its vertices, by definition
DEFINITIONS = {"ldbc": COUNTING["arcs_opposite"], "fagiolo": COUNTING["arcs_multiplied"]}

T = TypeVar("T")


def clustering(self: Runs[T], definition: str = "ldbc") -> T:
    """Compute the clustering coefficient of each vertex: float64 from 0 to 1, on the workers.

    On an undirected graph it is the share of pairs of neighbours that are neighbours themselves, with both definitions.
    Weights and loops are ignored.

    Parameters
    ----------
    definition : "ldbc" | "fagiolo"
        The definition on a directed graph. "ldbc": with N the set of all in- and out-neighbours of a vertex, each once
        and without the vertex itself, the number of arcs among them, divided by ``|N| (|N| - 1)`` [1]_. "fagiolo":
        the directed triangles, divided by all possible ones [2]_, as in NetworkX.

    Returns
    -------
    VertexValues
        0 for a vertex with less than two neighbours.

    Raises
    ------
    InvalidOption
        `definition` is neither of the two.
    CapacityError
        A worker has too little memory: that of `triangles`, and in a directed graph 4 bytes more per vertex of the
        whole graph. In-edges that a directed graph does not store are made for the call, which takes 32 bytes per arc
        meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(m sqrt(m)) at most, like `triangles`. Counts are exact, and the coefficient is one division of them.

    References
    ----------
    .. [1] The LDBC Graphalytics benchmark specification: "local clustering coefficient".
    .. [2] G. Fagiolo, "Clustering in complex directed networks", Phys. Rev. E 76, 2007.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # with directed=False  # doctest: +SKIP
    >>> g.clustering().to_numpy()  # doctest: +SKIP
    array([0.33333333, 1.        , 1.        , 0.        ])
    """
    return self.run("clustering", definition=definition)


def check(graph: GraphFacts, definition: Any = "ldbc") -> dict[str, Any]:
    """Return the program's arguments."""
    if not isinstance(definition, str) or definition not in DEFINITIONS:
        raise InvalidOption(f"definition is {definition!r}; it must be one of {', '.join(map(repr, DEFINITIONS))}")
    return {"definition": definition}


def run(shard: Shard, definition: str = "ldbc") -> Columns:
    """Return the clustering coefficient of each own vertex.

    Self-loops are ignored.

    Parameters
    ----------
    shard : Shard
    definition : "ldbc" | "fagiolo"
        For directed graphs; equal on undirected ones.

    Returns
    -------
    columns : dict
        "coefficient", float64[hi - lo] on the shard's device.
    scalars : dict
        None.

    Notes
    -----
    Costs are those of `corners` of triangles. The counts are exact, and the coefficient is one division of them.
    """
    directed, rows = shard.in_edges is not shard.out_edges, shard.hi - shard.lo
    counting = DEFINITIONS[definition] if directed else COUNTING["triangles"]
    triangles, values = corners(shard, counting), shard.device.empty(rows, np.float64)
    load_kernels(shard).Coefficients(
        rows, counts=triangles.counts, degrees=triangles.degrees, loops=triangles.loops, both=triangles.both, n=rows,
        counting=counting, values=values,
    )  # fmt: skip
    return {"coefficient": values}, {}


ALGORITHM = Algorithm(name="clustering", check=check, run=run, columns={"coefficient": "value"}, scalars=(), warm=warm)
