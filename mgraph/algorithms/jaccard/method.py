"""The method `jaccard` that users call, and what it shares with `overlap`: the check of pairs, and the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs, Vertices
from mgraph.algorithms.jaccard.program import run_jaccard, warm
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.tables.arrays import as_array

__all__ = ["ALGORITHM", "check", "jaccard", "result"]


def jaccard(self: Runs[Any], pairs: Any) -> np.ndarray:
    """Jaccard's coefficient of each pair of vertices: the share of their neighbours that are neighbours of both.

    Parameters
    ----------
    pairs : array of ints, shape (k, 2)
        Vertex ids; a pair may come several times, and a vertex be paired with itself.

    Returns
    -------
    float64[k]
        In this process: ``|N(u) & N(v)| / |N(u) | N(v)|``, 0 where both have no neighbours. N are the out-neighbours in
        a directed graph. A vertex with a self-loop is a neighbour of itself. Weights do not count.

    Raises
    ------
    UnknownVertex
        A pair has what is no vertex of the graph.
    InvalidOption
        `pairs` is no array of whole numbers with two columns.
    CapacityError
        A worker has too little memory: 60 bytes for each pair, and on several workers 13 bytes for each neighbour in
        the rows that travel at once, 4 million or a whole row.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    Each neighbour of the vertex of smaller degree is sought in the row of the other: O(d log D) a pair, or O(d) in
    structures that hash. On several workers, the shorter row travels to the worker that holds the longer one, 4 bytes a
    neighbour and once for all pairs in a piece that need it there; a piece takes a superstep. The result is exact. It
    is NetworkX's, but for pairs of which one has a self-loop: NetworkX does not count u and v themselves as common
    neighbours. After P. Jaccard, "Étude comparative de la distribution florale dans une portion des Alpes et des Jura",
    1901.

    Examples
    --------
    >>> g.insert([0, 0, 1, 1], [2, 3, 3, 4])  # of 5 vertices  # doctest: +SKIP
    >>> g.jaccard([[0, 1], [0, 0], [2, 3]])  # doctest: +SKIP
    array([0.33333333, 1.        , 0.        ])
    """
    scores: np.ndarray = self.run("jaccard", pairs=pairs)
    return scores


def check(graph: GraphFacts, pairs: Any) -> dict[str, Any]:
    """The program's arguments from the user's: both ends of the pairs, one after another."""
    try:
        array = as_array(pairs)
        array = array.reshape(0, 2) if array.shape == (0,) else array
        if array.ndim != 2 or array.shape[1] != 2:
            raise InvalidOption(f"pairs has shape {array.shape}; it must be (k, 2), two vertices a pair")
    except InvalidBatch as error:
        raise InvalidOption(str(error)) from None
    if array.dtype.kind == "f" and graph.ids is None:  # a column of it may have whole numbers
        bad = Device.to_host(array != array.round())
        if bad.any():
            pair, end = np.argwhere(bad)[0].tolist()
            raise InvalidOption(f"pairs[{pair}, {end}] is {float(array[pair, end])}; vertex ids are whole numbers")
    none = np.empty(0, np.uint32)
    ends = [graph.vertices(array[:, end], f"pairs[:, {end}]") if len(array) else none for end in (0, 1)]
    return {"pairs": Vertices(np.concatenate([Device.to_host(end) for end in ends]))}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> np.ndarray:
    """The scores in the order of the pairs, from what each rank found."""
    pair, score = (np.concatenate(columns[name]) for name in ("pair", "score"))
    scores = np.empty(info["pairs"], np.float64)
    scores[pair] = score
    return scores


ALGORITHM = Algorithm(
    name="jaccard",
    check=check,
    run=run_jaccard,
    columns={"pair": "value", "score": "value"},
    scalars=("pairs",),
    warm=warm,
    result=result,
)
