"""Similarity of the neighbours of two vertices, for pairs of vertices.

A pair is counted at the rank of its longer row. If its shorter row is on another rank, it is sent there, once for all
pairs that need it, and each of its neighbours is searched in the longer one. Pairs are taken in pieces, so that memory
is bounded. Every rank knows all pairs and degrees, so all cut equal pieces without asking for a row.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
degrees           1; a read-back                                            an allgather of 8 bytes per pair
own pairs         1                                                         none
a piece           3, and a copy of the rows sent; 2 read-backs              an alltoallv of 4 bytes per neighbour
================= ========================================================= ===========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Names, Runs, Shard, Vertices
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.tables.arrays import as_array, as_objects

__all__ = ["ALGORITHM", "check", "jaccard", "result", "run_jaccard", "run_overlap", "warm"]

PIECE = 1 << 22  #: neighbours per exchange, plus a last row


def jaccard(self: Runs[Any], pairs: Any) -> np.ndarray:
    """Return Jaccard's coefficient of each pair of vertices: the share of their neighbours that are neighbours of both.

    Parameters
    ----------
    pairs : array-like, shape (k, 2)
        Vertices, by id or key; a pair may come several times, and a vertex be paired with itself.

    Returns
    -------
    float64[k]
        In this process: ``|N(u) & N(v)| / |N(u) | N(v)|``, 0 if both have no neighbours. N are the out-neighbours in a
        directed graph. A vertex with a self-loop is a neighbour of itself. Weights do not count.

    Raises
    ------
    UnknownVertex
        A pair has an unknown vertex.
    InvalidOption
        `pairs` is no array of whole numbers with two columns.
    CapacityError
        A worker has too little memory: 60 bytes per pair, and on several workers 13 bytes per neighbour in the rows
        that travel at once, 4 million or a whole row.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    Each neighbour of the vertex of smaller degree is searched in the row of the other: O(d log D) per pair, or O(d) in
    structures that hash. On several workers, the shorter row travels to the worker of the longer one, 4 bytes per
    neighbour and once for all pairs in a piece that need it there; a piece takes a superstep. The result is exact. It
    is NetworkX's, except for pairs in which a vertex has a self-loop: NetworkX does not count u and v themselves as
    common neighbours. After P. Jaccard, "Étude comparative de la distribution florale dans une portion des Alpes et des
    Jura", 1901.

    Examples
    --------
    >>> g.insert([0, 0, 1, 1], [2, 3, 3, 4])  # of 5 vertices  # doctest: +SKIP
    >>> g.jaccard([[0, 1], [0, 0], [2, 3]])  # doctest: +SKIP
    array([0.33333333, 1.        , 0.        ])
    """
    scores: np.ndarray = self.run("jaccard", pairs=pairs)
    return scores


def check(graph: GraphFacts, pairs: Any) -> dict[str, Any]:
    """Return the program's arguments: the first ends of the pairs, then the second."""
    # Check the shape.
    try:
        array = _as_pairs(pairs)
        array = array.reshape(0, 2) if array.shape == (0,) else array
        if array.ndim != 2 or array.shape[1] != 2:
            raise InvalidOption(f"pairs has shape {array.shape}; it must be (k, 2), two vertices per pair")
    except InvalidBatch as error:
        raise InvalidOption(str(error)) from None

    # Check the ids of each column.
    if array.dtype.kind == "f" and graph.ids is None:  # a single column may be whole
        bad = Device.to_host(array != array.round())
        if bad.any():
            pair, end = np.argwhere(bad)[0].tolist()
            raise InvalidOption(f"pairs[{pair}, {end}] is {float(array[pair, end])}; vertex ids are whole numbers")
    none = np.empty(0, np.uint32)
    ends = [graph.vertices(array[:, end], f"pairs[:, {end}]") if len(array) else none for end in (0, 1)]
    return {"pairs": Vertices(np.concatenate([Device.to_host(end) for end in ends]))}


def _as_pairs(pairs: Any) -> Any:
    """Return pairs as an array; entries of lists keep their types, as in `as_objects`."""
    if isinstance(pairs, Sequence) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        return as_array(as_objects(list(chain.from_iterable(pairs)))).reshape(-1, 2)
    return as_array(pairs)


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> np.ndarray:
    """Join the ranks' scores in the order of the pairs."""
    pair, score = (np.concatenate(columns[name]) for name in ("pair", "score"))
    scores = np.empty(info["pairs"], np.float64)
    scores[pair] = score
    return scores


def warm(shard: Shard) -> None:
    """Compile the launches of the programs on this shard: the reads of its structure."""
    none = shard.device.empty(0, np.uint32)
    shard.out_edges.common_neighbors(none, none)


def run_jaccard(shard: Shard, pairs: np.ndarray) -> Columns:
    """Return Jaccard's coefficient of the pairs whose longer row is here."""
    return _scores(shard, pairs, lambda common, u, v: u + v - common)


def run_overlap(shard: Shard, pairs: np.ndarray) -> Columns:
    """Return the overlap coefficient of the pairs whose longer row is here."""
    return _scores(shard, pairs, lambda common, u, v: np.minimum(u, v))


def _scores(shard: Shard, pairs: np.ndarray, of: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Columns:
    """Divide the common neighbours of each pair by `of` these and both degrees.

    Parameters
    ----------
    shard : Shard
    pairs : uint32[2 * k]
        The first ends of all pairs, by internal ids, and then the second; equal on every rank.
    of : callable
        ``of(common, u, v)`` returns the divisor of common neighbours; 0 gives a score of 0.

    Returns
    -------
    columns : dict
        A line per pair counted here: "pair", int64[rows], its place, and "score", float64[rows].
    scalars : dict
        ``pairs``, their number.
    """
    # Find the longer row of each pair, and the ranks of both rows.
    u, v = pairs.reshape(2, -1)
    degree_u, degree_v = _degrees(shard, pairs).reshape(2, -1)
    swapped = degree_u < degree_v
    longer, shorter = np.where(swapped, v, u), np.where(swapped, u, v)
    home, away = shard.partition.owner(longer), shard.partition.owner(shorter)

    # Count pairs with both rows here.
    common = np.zeros(len(u), np.int64)
    own = np.flatnonzero((home == shard.rank) & (away == shard.rank))
    rows = (shard.device.asarray(ends[own] - np.uint32(shard.lo)) for ends in (longer, shorter))
    common[own] = Device.to_host(shard.out_edges.common_neighbors(*rows))

    # Count the other pairs, piece by piece.
    for piece in _pieces(np.flatnonzero(home != away), np.minimum(degree_u, degree_v)):
        mine = piece[home[piece] == shard.rank]
        length = np.minimum(degree_u, degree_v)[piece]
        common[mine] = _sought(shard, longer[piece], shorter[piece], home[piece], away[piece], length)

    # Divide.
    mine = np.flatnonzero(home == shard.rank)
    common, whole = common[mine], of(common[mine], degree_u[mine], degree_v[mine])
    score = np.divide(common, whole, out=np.zeros(len(mine)), where=whole > 0)
    return {"pair": shard.device.asarray(mine), "score": shard.device.asarray(score)}, {"pairs": len(u)}


def _degrees(shard: Shard, ids: np.ndarray) -> np.ndarray:
    """Return the degree of each of `ids`, on every rank: int64[k]."""
    own = (ids >= shard.lo) & (ids < shard.hi)
    degrees = np.zeros(len(ids), np.uint32)
    degrees[own] = Device.to_host(shard.out_edges.degrees(shard.device.asarray(ids[own] - np.uint32(shard.lo))))
    parts = shard.exchange.allgather(shard.device.asarray(degrees))
    return sum(Device.to_host(part).astype(np.int64) for part in parts)  # type: ignore[return-value]


def _pieces(places: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield `places` of pairs, cut after about `PIECE` neighbours in their rows."""
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
    """Count the common neighbours of a piece's pairs whose longer row is here.

    Shorter rows have `lengths`.
    """
    # Send each shorter row once to each rank that needs it.
    device, edges = shard.device, shard.out_edges
    sent = [distinct(shorter[(home == rank) & (away == shard.rank)]) for rank in range(shard.size)]
    rows = edges.neighbors(device.asarray(np.concatenate(sent) - np.uint32(shard.lo)))
    cuts = Device.to_host(rows.offsets)[np.cumsum([0, *map(len, sent)])].tolist()
    parts = shard.exchange.alltoallv([rows.dst[a:b] for a, b in pairwise(cuts)])

    # Repeat the received rows for each pair, and search them in the longer rows.
    here = home == shard.rank
    _, first, place = np.unique(shorter[here], return_index=True, return_inverse=True)  # grouped by rank, as received
    longer, lengths = longer[here], lengths[here]
    starts, ends = _offsets(lengths[first])[:-1], _offsets(lengths)
    slots = np.arange(ends[-1]) + np.repeat(starts[place] - ends[:-1], lengths)
    dst = device.gather(device.concatenate(parts), device.asarray(slots))
    hits = edges.has_edges(device.asarray(np.repeat(longer - np.uint32(shard.lo), lengths)), dst)

    # Count the hits of each pair.
    upto = _offsets(Device.to_host(hits))
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
