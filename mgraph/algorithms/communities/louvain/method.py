"""Method `louvain`, and the check of its arguments."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.dynamic import Communities, Names
from mgraph.algorithms.communities.louvain.program import descend, run, warm
from mgraph.algorithms.communities.multilevel.arguments import check_arguments

__all__ = ["ALGORITHM", "louvain"]

T = TypeVar("T")


def louvain(self: Runs[T], resolution: float = 1.0, seed: int | None = None, max_levels: int | None = None) -> T:
    """Compute communities by the Louvain method, named by their smallest vertex id: int64, on the workers.

    The method looks for communities of large `modularity`. Weights count, and a self-loop counts twice, like in
    NetworkX. On a directed graph, the modularity is the directed one. `leiden` takes longer, and finds communities of
    larger modularity, of which each is connected.

    Parameters
    ----------
    resolution : float
        0 to 1e100. Above 1 communities become smaller, below 1 larger.
    seed : int, optional
        0 or more. Another seed lets other vertices choose at the same time, and so may find other communities. None is
        0: equal graphs have equal communities in every run.
    max_levels : int, optional
        The largest number of levels, 1 or more, of which the graph itself is the first. None for as many as gain
        modularity.

    Returns
    -------
    VertexValues
        With ``.modularity``; ``.communities``, their number; and ``.levels``, how often communities became the vertices
        of a smaller graph.

    Raises
    ------
    InvalidOption
        The graph is directed and has no in-edges, a weight is negative or not finite, or an argument is out of its
        range.
    CapacityError
        A worker has too little memory: 80 bytes per vertex of the whole graph, on a GPU up to 56 per stored edge
        between communities, on a CPU 12, and 200 MB for wide rows: of more than 192 edges on a GPU, and more than
        32,768 on a CPU.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per sweep; usually 3 to 20 sweeps on the graph, and further ones on ever smaller graphs. After the first
    sweep only those vertices choose whose neighbours have moved. A sweep is four supersteps, in graphs of up to 65,536
    vertices up to 64 if fewer gain nothing, in which 8 bytes travel per moved vertex. Sums of weights are whole numbers
    of a unit of 2**-61 of the sum of all. So communities do not depend on the number of workers, the structure or the
    order of the vertices. A GPU may round a gain differently than a CPU, and so decide differently between nearly equal
    gains. After V. D. Blondel, J.-L. Guillaume, R. Lambiotte, E. Lefebvre, "Fast unfolding of communities in large
    networks", J. Stat. Mech., 2008.

    Examples
    --------
    >>> g.insert([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])  # with directed=False  # doctest: +SKIP
    >>> g.louvain().to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 3, 3])
    """
    return self.run("louvain", resolution=resolution, seed=seed, max_levels=max_levels)


def check(graph: GraphFacts, resolution: Any = 1.0, seed: Any = None, max_levels: Any = None) -> dict[str, Any]:
    """Return the program's arguments."""
    return check_arguments(graph, "louvain", resolution, max_levels, seed)


ALGORITHM = Algorithm(
    name="louvain",
    check=check,
    run=run,
    columns={"community": "label", "name": "value"},
    scalars=("modularity", "communities", "levels"),
    warm=warm,
    maintain=partial(Communities, program=run, descend=descend, what="louvain", scalar="modularity"),
    memory=Names,
)
