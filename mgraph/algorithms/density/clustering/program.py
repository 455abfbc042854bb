"""Local clustering coefficients, from what triangles add to each vertex; see `density.triangles`."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.density.triangles.program import COUNTING, corners, load_kernels, warm

__all__ = ["DEFINITIONS", "run", "warm"]

#: what a triangle adds to each of its vertices, by definition
DEFINITIONS = {"ldbc": COUNTING["arcs_opposite"], "fagiolo": COUNTING["arcs_multiplied"]}


def run(shard: Shard, definition: str = "ldbc") -> Columns:
    """The clustering coefficient of each own vertex; self-loops are ignored.

    Parameters
    ----------
    shard : Shard
    definition : "ldbc" | "fagiolo"
        For directed graphs; the same on undirected ones.

    Returns
    -------
    columns : dict
        "coefficient", float64[hi - lo] on the shard's device.
    scalars : dict
        None.

    Notes
    -----
    `corners` of triangles says what it costs. The counts are exact, and the coefficient is one division of them.
    """
    directed, rows = shard.in_edges is not shard.out_edges, shard.hi - shard.lo
    counting = DEFINITIONS[definition] if directed else COUNTING["triangles"]
    found, values = corners(shard, counting), shard.device.empty(rows, np.float64)
    load_kernels(shard).Coefficients(
        rows, counts=found.counts, degrees=found.degrees, loops=found.loops, both=found.both, n=rows,
        counting=counting, values=values,
    )  # fmt: skip
    return {"coefficient": values}, {}
