"""Program of `gather`: a reduction over the neighbours of each vertex, in a single superstep."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming
from mgraph.algorithms.primitives.gather.reduction import Reduction
from mgraph.device import Array
from mgraph.errors import InvalidOption

__all__ = ["run", "warm"]


def warm(shard: Shard) -> None:
    """Do nothing: `run` compiles its kernels, which depend on the expression, before anything else."""


def run(
    shard: Shard,
    values: Array | float,
    reduce: str = "sum",
    edge: str = "value",
    named: bool = False,
    direction: str = "in",
) -> Columns:
    """Return the reduction of each own vertex.

    Parameters
    ----------
    shard : Shard
    values : array of hi - lo numbers, or float
        The values of the own vertices, on the device or in host memory; or one for all vertices.
    reduce : "sum" | "min" | "max" | "count"
    edge : str
        The expression in C++, from `parse_edge`.
    named : bool
        True if it uses u or v.
    direction : "in" | "out"
        Over the sources of in-edges, or the destinations of out-edges.

    Returns
    -------
    columns : dict
        "gathered": float32[hi - lo] if `values` are float32, else float64; int64 for counts.
    scalars : dict
        None.

    Raises
    ------
    InvalidOption
        `values` has several rows. Raised on every rank.
    CapacityError
        Too little memory for the result and the arrays that the method's docstring lists.
    """
    if not isinstance(values, float) and values.ndim != 1:
        raise InvalidOption(f"values has {values.ndim} dimensions; it must have one number for each vertex")
    edges = shard.out_edges if direction == "out" else incoming(shard, "gather")
    bits = 32 if not isinstance(values, float) and values.dtype == np.float32 else 64
    return {"gathered": Reduction(shard, edges, edge, reduce, bits, named).of(values)}, {}
