"""Method `sample_neighbors`, its check of arguments, and its result's layout."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs, Vertices
from mgraph.algorithms.sampling.random_walks.method import check_seed
from mgraph.algorithms.sampling.sample_neighbors.program import run, warm
from mgraph.checks import check_direction
from mgraph.errors import InvalidOption
from mgraph.parallel_copy import widened

__all__ = ["ALGORITHM", "SampledNeighbors", "sample_neighbors"]


@dataclass(frozen=True)
class SampledNeighbors:
    """Sampled subgraph in the layout of ``torch_geometric.sampler.SamplerOutput``, with the same names.

    Parameters
    ----------
    node : int64[n]
        The vertices, each once: the seeds in their order, then the new ones of each hop. str objects for keys that are
        strings.
    row, col : int64[m]
        The sampled edges as places in `node`, hop by hop: `row` is the sampled neighbour, and `col` the vertex whose
        neighbour it is. ``torch.from_numpy(numpy.stack([row, col]))`` is PyG's ``edge_index``.
    num_sampled_nodes : list of int
        The number of seeds in `node`, and of the new vertices of each hop.
    num_sampled_edges : list of int
        The number of sampled edges of each hop.
    """

    node: np.ndarray
    row: np.ndarray
    col: np.ndarray
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]


def sample_neighbors(
    self: Runs[Any], seeds: Any, fanouts: Any, seed: int | None = None, direction: str = "in"
) -> SampledNeighbors:
    """Sample neighbours of `seeds`, of these neighbours, and so on, without replacement, like PyG's ``NeighborLoader``.

    Parameters
    ----------
    seeds : array-like, shape (k,)
        Vertices, by id or key, all different.
    fanouts : list of int
        The number of neighbours to sample per vertex, for each hop; -1 for all. A hop samples the neighbours of the
        vertices that were new in the hop before. Of a vertex with fewer neighbours, all are taken.
    seed : int, optional
        0 to 2**64 - 1. Equal seeds give equal samples of equal graphs, whatever the number of workers, the structure,
        the order and the device. With keys, equal graphs have their keys in equal order in `vertices`. By default each
        call draws a seed.
    direction : "in" | "out"
        Sample the sources of in-edges, along which messages come, like PyG; or the destinations of out-edges. "in"
        needs ``reverse=True`` or an undirected graph.

    Returns
    -------
    SampledNeighbors
        In this process, in the layout of PyG's ``SamplerOutput``.

    Raises
    ------
    UnknownVertex
        A seed is not a vertex of the graph.
    InvalidOption
        `seeds` is empty, has a vertex twice or is no array of whole numbers; a fanout is less than -1; `seed` is out of
        range; or `direction` is "in" in a graph without in-edges.
    CapacityError
        A worker has too little memory: for an own vertex 8 bytes per neighbour or, if k are sampled,
        8 (2 k + 32 + 8 sqrt(2 k + 32)) if that is less; 72 per sampled edge of all workers; and with an order 8 per
        vertex of the whole graph. Or the sample may have more than 2**31 vertices.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    A superstep per hop, in which each worker sends every other 8 bytes per sampled neighbour. The row of each vertex
    whose neighbours are sampled is read once, O(d). Each neighbour gets a hash of seed, vertex and neighbour, and the
    smallest are chosen, so that all sets of neighbours are equally likely. After W. Hamilton, R. Ying, J. Leskovec,
    "Inductive representation learning on large graphs", NIPS 2017.

    Examples
    --------
    >>> g.insert([1, 2, 3, 4], [0, 0, 0, 1])  # of 5 vertices, with reverse=True  # doctest: +SKIP
    >>> sample = g.sample_neighbors([0], [-1, 2])  # doctest: +SKIP
    >>> sample.node, sample.row, sample.col  # doctest: +SKIP
    (array([0, 1, 2, 3, 4]), array([1, 2, 3, 4]), array([0, 0, 0, 1]))
    >>> sample.num_sampled_nodes, sample.num_sampled_edges  # doctest: +SKIP
    ([1, 3, 1], [3, 1])
    """
    sample: SampledNeighbors = self.run(
        "sample_neighbors", seeds=seeds, fanouts=fanouts, seed=seed, direction=direction
    )
    return sample


def check(graph: GraphFacts, seeds: Any, fanouts: Any, seed: Any = None, direction: Any = "in") -> dict[str, Any]:
    """Return the program's arguments."""
    vertices = graph.vertices(seeds, "seeds")
    graph.check_distinct(seeds, vertices, "seeds", "seeds")
    try:
        given = list(fanouts)
        wanted = [operator.index(fanout) for fanout in given]
    except TypeError:
        raise InvalidOption(f"fanouts is {fanouts!r}; it must be a list of whole numbers, one for each hop") from None
    for hop, fanout in enumerate(wanted):
        if fanout < -1 or isinstance(given[hop], bool):
            raise InvalidOption(f"fanouts[{hop}] is {given[hop]}; it must be 0 or more, or -1 for all neighbours")
    program = {"seeds": Vertices(vertices), "fanouts": [min(fanout, sys.maxsize >> 2) for fanout in wanted]}
    return {**program, "seed": check_seed(seed), "direction": check_direction(direction, graph.reverse)}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> SampledNeighbors:
    """Return the sample, which rank 0 has laid out."""
    node, row, col = (widened(columns[name][0]) for name in ("node", "row", "col"))
    return SampledNeighbors(names(node), row, col, list(info["nodes"]), list(info["edges"]))


ALGORITHM = Algorithm(
    name="sample_neighbors",
    check=check,
    run=run,
    columns={"node": "value", "row": "value", "col": "value"},
    scalars=("nodes", "edges"),
    warm=warm,
    result=result,
)
