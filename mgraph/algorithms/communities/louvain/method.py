"""The method `louvain` that users call, and the check of its arguments."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.louvain.program import run, warm
from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "check_resolution", "louvain"]

T = TypeVar("T")


def louvain(self: Runs[T], resolution: float = 1.0, seed: int | None = None) -> T:
    """The community of each vertex by the Louvain method, named by its smallest vertex id: int64, on the workers.

    The method looks for communities of large modularity, see `modularity`. Weights count, and a self-loop counts twice,
    as in NetworkX.

    Parameters
    ----------
    resolution : float
        0 or more. Above 1 communities become smaller, below 1 larger.
    seed : int, optional
        0 or more. Another seed lets other vertices choose at the same time, and so may find other communities. None is
        0: the same graph has the same communities in every run.

    Returns
    -------
    VertexValues
        With ``.modularity``, that of the communities; ``.communities``, their number; and ``.levels``, how often
        communities were taken for the vertices of a smaller graph.

    Raises
    ------
    InvalidOption
        The graph is directed, a weight is negative or not finite, or an argument is out of its range.
    CapacityError
        A worker has too little memory. It needs 60 bytes for each vertex of the whole graph, up to 56 for each edge
        that it stores between communities, and 200 MB for rows of more than 192 edges.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) a sweep; usually 3 to 15 sweeps on the graph, and further ones on ever smaller graphs. A sweep is eight
    supersteps, in graphs of up to 65,536 vertices up to 64 where fewer gain nothing, in which 8 bytes travel for each
    vertex that moves. Sums of weights are whole numbers of a unit that is 2**-61 of the sum of all. So communities do
    not depend on the number of workers, the structure or the order of the vertices. A GPU may round a gain otherwise
    than a CPU, and then decide otherwise between gains that are as good as equal. After V. D. Blondel, J.-L. Guillaume,
    R. Lambiotte, E. Lefebvre, "Fast unfolding of communities in large networks", J. Stat. Mech., 2008.

    Examples
    --------
    >>> g.insert([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])  # with directed=False  # doctest: +SKIP
    >>> g.louvain().to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 3, 3])
    """
    return self.run("louvain", resolution=resolution, seed=seed)


def check_resolution(value: Any) -> float:
    """`value` as a float; `InvalidOption` unless it is a finite number of 0 or more."""
    if not 0 <= check_number(value, "resolution") < math.inf:
        raise InvalidOption(f"resolution is {value}; it must be finite and 0 or more")
    return float(value)


def check(graph: GraphFacts, resolution: Any = 1.0, seed: Any = None) -> dict[str, Any]:
    """The program's arguments from the user's."""
    if graph.directed:
        raise InvalidOption("louvain is for undirected graphs; create the graph with directed=False")
    return {
        "resolution": check_resolution(resolution),
        "seed": 0 if seed is None else check_whole(seed, "seed") % 2**64,
    }


ALGORITHM = Algorithm(
    name="louvain",
    check=check,
    run=run,
    columns={"community": "label"},
    scalars=("modularity", "communities", "levels"),
    warm=warm,
)
