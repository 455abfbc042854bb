"""How similar the neighbours of two vertices are, for pairs of vertices.

A pair is counted where its longer row is. If its shorter row is on another rank, it is sent there, once for all pairs
that need it, and each of its neighbours is sought in the longer one. Pairs are taken in pieces, so that memory is
bounded. Every rank knows all pairs and degrees, so all cut the pieces alike and nobody has to ask for a row.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
degrees           1; a read-back                                            an allgather of 8 bytes a pair
own pairs         1                                                         none
a piece           3, and a copy of the rows sent; 2 read-backs              an alltoallv of 4 bytes a neighbour
================= ========================================================= ===========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Names, Runs, Shard, Vertices
from mgraph.columns import as_array
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption

__all__ = ["ALGORITHM", "check", "jaccard", "result", "run_jaccard", "run_overlap", "warm"]

PIECE = 1 << 22  #: neighbours that travel at once, but for a last row


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


def warm(shard: Shard) -> None:
    """Compile what the programs launch on this shard: the reads of its structure."""
    none = shard.device.empty(0, np.uint32)
    shard.out_edges.common_neighbors(none, none)


def run_jaccard(shard: Shard, pairs: np.ndarray) -> Columns:
    """Jaccard's coefficient of the pairs whose longer row is here; see `_scores`."""
    return _scores(shard, pairs, lambda common, u, v: u + v - common)


def run_overlap(shard: Shard, pairs: np.ndarray) -> Columns:
    """The overlap coefficient of the pairs whose longer row is here; see `_scores`."""
    return _scores(shard, pairs, lambda common, u, v: np.minimum(u, v))


def _scores(shard: Shard, pairs: np.ndarray, of: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Columns:
    """The common neighbours of each pair, by a number `of` these and both degrees.

    Parameters
    ----------
    shard : Shard
    pairs : uint32[2 * k]
        The first ends of all pairs, by internal ids, and then the second; the same on every rank.
    of : callable
        ``of(common, u, v)``, by which common neighbours are divided; 0 gives a score of 0.

    Returns
    -------
    columns : dict
        For each pair that was counted here: "pair", int64[found], its place, and "score", float64[found].
    scalars : dict
        ``pairs``, how many there are.
    """
    u, v = pairs.reshape(2, -1)
    degree_u, degree_v = _degrees(shard, pairs).reshape(2, -1)
    swapped = degree_u < degree_v
    longer, shorter = np.where(swapped, v, u), np.where(swapped, u, v)
    home, away = shard.partition.owner(longer), shard.partition.owner(shorter)
    common = np.zeros(len(u), np.int64)
    own = np.flatnonzero((home == shard.rank) & (away == shard.rank))
    rows = (shard.device.asarray(ends[own] - np.uint32(shard.lo)) for ends in (longer, shorter))
    common[own] = Device.to_host(shard.out_edges.common_neighbors(*rows))
    for piece in _pieces(np.flatnonzero(home != away), np.minimum(degree_u, degree_v)):
        mine = piece[home[piece] == shard.rank]
        length = np.minimum(degree_u, degree_v)[piece]
        common[mine] = _sought(shard, longer[piece], shorter[piece], home[piece], away[piece], length)
    mine = np.flatnonzero(home == shard.rank)
    common, whole = common[mine], of(common[mine], degree_u[mine], degree_v[mine])
    score = np.divide(common, whole, out=np.zeros(len(mine)), where=whole > 0)
    return {"pair": shard.device.asarray(mine), "score": shard.device.asarray(score)}, {"pairs": len(u)}


def _degrees(shard: Shard, ids: np.ndarray) -> np.ndarray:
    """The degree of each of `ids`, on every rank: int64[k]."""
    own = (ids >= shard.lo) & (ids < shard.hi)
    found = np.zeros(len(ids), np.uint32)
    found[own] = Device.to_host(shard.out_edges.degrees(shard.device.asarray(ids[own] - np.uint32(shard.lo))))
    parts = shard.exchange.allgather(shard.device.asarray(found))
    return sum(Device.to_host(part).astype(np.int64) for part in parts)  # type: ignore[return-value]


def _pieces(places: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """`places` of pairs, cut after about `PIECE` neighbours in their rows."""
    before = np.cumsum(lengths[places])
    total = int(before[-1]) if len(places) else 0
    ends = np.searchsorted(before, np.arange(PIECE, total + PIECE, PIECE))
    first = 0
    for end in np.unique(ends).tolist():
        yield places[first : end + 1]
        first = end + 1


def _sought(
    shard: Shard, longer: np.ndarray, shorter: np.ndarray, home: np.ndarray, away: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """The common neighbours of those pairs of a piece whose longer row is here, and whose shorter one has `lengths`."""
    device, edges = shard.device, shard.out_edges
    sent = [np.unique(shorter[(home == rank) & (away == shard.rank)]) for rank in range(shard.size)]
    rows = edges.neighbors(device.asarray(np.concatenate(sent) - np.uint32(shard.lo)))
    cuts = Device.to_host(rows.offsets)[np.cumsum([0, *map(len, sent)])].tolist()
    parts = shard.exchange.alltoallv([rows.dst[a:b] for a, b in pairwise(cuts)])
    here = home == shard.rank
    _, first, place = np.unique(shorter[here], return_index=True, return_inverse=True)  # in the order of their ranks
    longer, lengths = longer[here], lengths[here]
    starts, ends = _offsets(lengths[first])[:-1], _offsets(lengths)
    slots = np.arange(ends[-1]) + np.repeat(starts[place] - ends[:-1], lengths)
    dst = device.gather(device.concatenate(parts), device.asarray(slots))
    found = edges.has_edges(device.asarray(np.repeat(longer - np.uint32(shard.lo), lengths)), dst)
    upto = _offsets(Device.to_host(found))
    return np.diff(upto[ends])


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


ALGORITHM = Algorithm(
    name="jaccard",
    check=check,
    run=run_jaccard,
    columns={"pair": "value", "score": "value"},
    scalars=("pairs",),
    warm=warm,
    result=result,
)
