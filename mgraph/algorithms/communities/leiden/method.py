"""Method `leiden`, and the check of its arguments."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.dynamic import Communities, Names
from mgraph.algorithms.communities.leiden.program import descend, run, warm
from mgraph.algorithms.communities.multilevel.arguments import check_arguments
from mgraph.algorithms.communities.multilevel.objective import QUALITIES
from mgraph.checks import is_choice
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "leiden"]

T = TypeVar("T")


def leiden(
    self: Runs[T],
    resolution: float = 1.0,
    quality: str = "modularity",
    max_levels: int | None = None,
    seed: int = 0,
) -> T:
    """Compute communities by the Leiden method, named by their smallest vertex id: int64, on the workers.

    Each community is connected, by its own edges of positive weight. Weights count.
    `louvain` is faster, and finds communities of smaller modularity, of which some may not be connected.

    Parameters
    ----------
    resolution : float
        0 to 1e100. Above 1 communities become smaller, below 1 larger.
    quality : "modularity" | "cpm"
        The quantity to maximise: `modularity`, on a directed graph the directed one, in which a self-loop counts twice,
        like in NetworkX; or the constant Potts model: the weight of the edges inside of communities, less `resolution`
        times the number of pairs of vertices in each, in a directed graph of ordered pairs.
    max_levels : int, optional
        The largest number of levels of an iteration, 1 or more, of which the graph itself is the first. None for as
        many as gain quality.
    seed : int, optional
        0 or more. Another seed lets other vertices choose at the same time, and so may find other communities. None is
        0: equal graphs have equal communities in every run.

    Returns
    -------
    VertexValues
        With ``.quality``, the quality reached; ``.communities``, their number; and ``.levels``, how often parts became
        the vertices of a smaller graph in the last iteration.

    Raises
    ------
    InvalidOption
        The graph is directed and has no in-edges, a weight is negative or not finite, or an argument is out of its
        range.
    CapacityError
        A worker has too little memory; it needs that of `louvain`, and that of parts of communities beside it.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per sweep. Communities do not depend on the number of workers, the structure or the order of the vertices.
    A GPU may round a gain differently than a CPU, and so decide differently between nearly equal gains. There are two
    iterations, and one in graphs of more than 1,048,576 vertices. After the last one, vertices and parts of communities
    move once more. Graphs of up to 32,768 vertices have up to ten iterations while they gain 0.01%. In larger ones the
    first three levels have eight times the resolution, unless hubs often meet, so that large communities do not join
    while they form. So few iterations do not promise the optimality of subsets that the paper proves in the limit.
    After V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities",
    Scientific Reports 9, 2019.

    Examples
    --------
    >>> g.insert([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])  # with directed=False  # doctest: +SKIP
    >>> g.leiden().to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 3, 3])
    """
    return self.run("leiden", resolution=resolution, quality=quality, max_levels=max_levels, seed=seed)


def check(
    graph: GraphFacts, resolution: Any = 1.0, quality: Any = "modularity", max_levels: Any = None, seed: Any = 0
) -> dict[str, Any]:
    """Return the program's arguments."""
    arguments = check_arguments(graph, "leiden", resolution, max_levels, seed)
    if not is_choice(quality, QUALITIES):
        raise InvalidOption(f'quality is {quality!r}; it must be "modularity" or "cpm"')
    return arguments | {"quality": quality}


#: the program of maintained communities: after a single iteration, quality differs by chance more than they may lose
followed = partial(run, least_iterations=2)

ALGORITHM = Algorithm(
    name="leiden",
    check=check,
    run=run,
    columns={"community": "label", "name": "value"},
    scalars=("quality", "communities", "levels"),
    warm=warm,
    maintain=partial(Communities, program=followed, descend=descend, what="leiden", scalar="quality"),
    memory=Names,
)
