"""Method `random_walks`, and the check of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs, Vertices
from mgraph.algorithms.sampling.random_walks.program import run, warm
from mgraph.budget import LARGE, host_memory_limit
from mgraph.checks import check_whole
from mgraph.errors import CapacityError, InvalidOption

__all__ = ["ALGORITHM", "check_seed", "random_walks"]


def random_walks(self: Runs[Any], starts: Any, length: int, seed: int | None = None) -> np.ndarray:
    """Draw random walks along out-edges, in the layout of ``torch_cluster.random_walk``.

    Parameters
    ----------
    starts : array-like, shape (k,)
        The vertex at which each walk begins, by id or key; vertices may repeat.
    length : int
        The number of steps, 0 or more.
    seed : int, optional
        0 to 2**64 - 1. Equal seeds give equal walks on equal graphs, whatever the number of workers, the structure, the
        order and the device. With keys, equal graphs have their keys in equal order in `vertices`. By default each call
        draws a seed.

    Returns
    -------
    int64[k, length + 1]
        In this process, or str objects for keys that are strings; row i begins with ``starts[i]``. All out-edges of a
        vertex are equally likely, whatever their weights. A walk stays at a vertex without out-edges, as in PyG's
        ``Node2Vec``.

    Raises
    ------
    UnknownVertex
        A start is not a vertex of the graph.
    InvalidOption
        `starts` is empty, no array of whole numbers or longer than 2**32, `length` is negative, or `seed` is out of
        range.
    CapacityError
        This process has too little memory for the walks, or a worker has too little: in a graph with an order 8 bytes
        per vertex of the whole graph, of which 4 stay, and for up to a million walks at a time 12 bytes per visit, 24
        per walk, 16 per walk and worker, and 40 MB for rows of more than 1,024 edges; if there are more, 24 per visit
        of its vertices.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The workers make all steps together, and 8 bytes per walk travel in each. A step reads the whole row of the walk's
    vertex, O(d): each neighbour gets a hash of seed, walk, step and its id, and the smallest is taken. That makes walks
    independent of where and how rows are stored. L. Lovász, "Random walks on graphs: a survey", 1993, has the theory.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 3])  # of 4 vertices  # doctest: +SKIP
    >>> g.random_walks([0, 2], 3, seed=1)  # doctest: +SKIP
    array([[0, 1, 2, 3],
           [2, 3, 3, 3]])
    """
    walks: np.ndarray = self.run("random_walks", starts=starts, length=length, seed=seed)
    return walks


def check(graph: GraphFacts, starts: Any, length: Any, seed: Any = None) -> dict[str, Any]:
    """Return the program's arguments."""
    vertices = graph.vertices(starts, "starts")
    steps = check_whole(length, "length")
    if len(vertices) > 2**32:
        raise InvalidOption(f"starts has {len(vertices)} vertices; it may have 2**32")
    wanted = 8 * (steps + 1) * len(vertices)
    if wanted >= LARGE and wanted > (free := host_memory_limit()):
        raise CapacityError(f"length is {length}; {len(vertices)} walks take {wanted} bytes here, and {free} are free")
    return {"starts": Vertices(vertices), "length": steps, "seed": check_seed(seed)}


def check_seed(seed: Any) -> int:
    """Return `seed` as a 64-bit number, or a random one for None."""
    if seed is None:
        return int(np.random.default_rng().integers(2**63))
    if check_whole(seed, "seed") >= 2**64:
        raise InvalidOption(f"seed is {seed}; it must be less than 2**64")
    return int(seed)


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> np.ndarray:
    """Join the walks from the visits on each rank."""
    n_steps = info["length"] + 1
    walks = np.empty(info["walks"] * n_steps, np.int64)
    for vertex, place in zip(*columns.values(), strict=True):
        walks[place] = vertex
    return names(walks).reshape(-1, n_steps)


ALGORITHM = Algorithm(
    name="random_walks",
    check=check,
    run=run,
    columns={"vertex": "value", "place": "value"},
    scalars=("walks", "length"),
    warm=warm,
    result=result,
)
