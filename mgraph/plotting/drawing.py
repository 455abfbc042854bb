"""Drawing of a sampled neighbourhood, laid out by NetworkX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mgraph.algorithms.sampling.sample_neighbors.method import SampledNeighbors
from mgraph.checks import check_whole, is_series
from mgraph.client.results.results import VertexRows, VertexValues
from mgraph.errors import CapacityError, InvalidOption
from mgraph.plotting.canvas import for_plots, shown_once
from mgraph.tables.arrays import is_one

__all__ = ["draw"]

MOST = 2000  #: maximum number of vertices in a picture
LABELLED = 60  #: maximum number of vertices that are labelled by default

Labels = Mapping[Any, str] | Callable[[Any], str] | bool | None


def draw(
    self: Any,
    sample: Any,
    hops: int = 1,
    fanout: int = 10,
    *,
    direction: str = "out",
    values: Any = None,
    labels: Labels = None,
    seed: int = 0,
    ax: Any = None,
) -> Any:
    """Draw a sampled neighbourhood of some vertices.

    Needs Matplotlib and NetworkX (the extra ``plot``).

    Parameters
    ----------
    sample : a vertex, an array of vertices, or SampledNeighbors
        The vertices to begin from; or a result of `sample_neighbors`, which is drawn as it is.
    hops : int
        Maximum distance from the first vertices, in edges; 1 or more.
    fanout : int
        Neighbours per vertex, sampled without replacement; -1 for all.
    direction : "out" | "in"
        As in `sample_neighbors`. For a given sample, its direction.
    values : VertexValues, array or pandas.Series, optional
        Colours: a value for each vertex of the graph, such as ``g.pagerank()`` or ``g.connected_components()``. An
        array is in the order of `vertices`, and a Series is aligned by its index.
    labels : mapping, callable or bool, optional
        The text of each vertex; vertices missing from a mapping have none. True writes ids or keys, False nothing. By
        default ids are written for up to 60 vertices.
    seed : int
        The seed of the sample and of the layout.
    ax : matplotlib.axes.Axes, optional
        The axes to draw in; by default those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Vertices of the start have a dark rim.

    Raises
    ------
    UnknownVertex
        A vertex is not in the graph.
    InvalidOption
        `hops`, `fanout`, `direction` or `seed` is bad, or `values` has no value for each vertex.
    CapacityError
        The sample has more than 2,000 vertices.
    MgraphError
        Matplotlib or NetworkX is not installed.

    Notes
    -----
    One call of `sample_neighbors`, and one to gather values. The layout is NetworkX's spring layout, O(n^2) for n
    vertices.
    """
    # Sample the neighbourhood.
    pyplot, nx = for_plots("matplotlib.pyplot"), for_plots("networkx")
    neighbors = (
        sample if isinstance(sample, SampledNeighbors) else _sampled(self, sample, hops, fanout, seed, direction)
    )
    if len(neighbors.node) > MOST:
        raise CapacityError(f"the sample has {len(neighbors.node)} vertices; a picture has at most {MOST}")

    # Build a NetworkX graph and compute its layout.
    names = neighbors.node.tolist()
    picture = nx.DiGraph() if self.directed else nx.Graph()
    picture.add_nodes_from(names)
    near, far = (neighbors.node[places].tolist() for places in (neighbors.col, neighbors.row))
    picture.add_edges_from(zip(near, far, strict=True) if direction == "out" else zip(far, near, strict=True))
    at = nx.spring_layout(picture, seed=seed, method="force", k=1.5 / max(1, len(names)) ** 0.5)

    # Paint edges, vertices and labels.
    figure = ax.figure if ax is not None else pyplot.figure(figsize=(8, 6), layout="constrained")
    axes = ax if ax is not None else figure.add_subplot()
    seeds = neighbors.num_sampled_nodes[0]
    _paint(nx, picture, at, axes, names, seeds, _colours(self, values, names, seeds))
    texts = _texts(labels, names)
    nx.draw_networkx_labels(picture, at, labels=texts, font_size=8, ax=axes, verticalalignment="bottom")
    axes.set_title(f"{len(names):,} vertices, {picture.number_of_edges():,} edges, epoch {self.epoch}", fontsize=10)
    axes.set_axis_off()
    if ax is None:
        shown_once(figure)
    return figure


def _sampled(graph: Any, vertices: Any, hops: int, fanout: int, seed: int, direction: str) -> SampledNeighbors:
    """Sample `fanout` neighbours of each vertex for `hops` hops."""
    if check_whole(hops, "hops") < 1:
        raise InvalidOption(f"hops is {hops}; at least 1 is needed")
    if fanout != -1:
        check_whole(fanout, "fanout")
    # Check the vertices by the name that they have here; `sample_neighbors` calls them seeds.
    facts = graph._options.facts(graph._directory.check())
    if is_one(vertices):
        facts.vertex(vertices, "sample")
        vertices = [vertices]
    else:
        facts.check_distinct(vertices, facts.vertices(vertices, "sample"), "sample", "sample")
    neighbors: SampledNeighbors = graph.sample_neighbors(vertices, [fanout] * hops, seed, direction)
    return neighbors


def _colours(graph: Any, values: Any, names: list[Any], seeds: int) -> Any:
    """Return a number per vertex, or colours without `values`."""
    if values is None:
        return ["tab:orange"] * seeds + ["tab:blue"] * (len(names) - seeds)
    if is_series(values) or (isinstance(values, VertexValues) and not isinstance(values, VertexRows)):
        chosen = np.asarray(values[names])
    else:
        array, n = np.asarray(values), graph.num_vertices
        if array.shape != (n,):
            raise InvalidOption(f"values has shape {array.shape}; it must have a value for each of {n} vertices")
        chosen = array[graph._directory.ids(names, "vertices")]
    # Keys, as of components, are numbered in the order of the vertices.
    if chosen.dtype.kind not in "biuf":
        numbers = dict[Any, int]()
        chosen = np.array([numbers.setdefault(value, len(numbers)) for value in chosen.tolist()])
    return chosen.astype(float)


def _texts(labels: Labels, names: list[Any]) -> dict[Any, str]:
    """Return the text of each labelled vertex."""
    if labels is None:
        labels = len(names) <= LABELLED
    if isinstance(labels, bool):
        return {name: str(name) for name in names} if labels else {}
    if callable(labels):
        return {name: labels(name) for name in names}
    return {name: labels[name] for name in names if name in labels}


def _paint(nx: Any, picture: Any, at: Any, axes: Any, names: list[Any], seeds: int, colours: Any) -> None:
    """Draw edges and vertices, and a colour bar for numbers."""
    size = float(np.clip(6000 / len(names), 15, 200)) if names else 0.0
    arrows = {"arrowsize": 8, "node_size": size} if picture.is_directed() else {}  # NetworkX warns of them without
    nx.draw_networkx_edges(picture, at, ax=axes, edge_color="0.7", width=0.8, **arrows)
    rims = ["black"] * seeds + ["white"] * (len(names) - seeds)
    nodes = nx.draw_networkx_nodes(
        picture, at, names, ax=axes, node_size=size, node_color=colours, edgecolors=rims, linewidths=0.8
    )
    if isinstance(colours, np.ndarray):
        axes.figure.colorbar(nodes, ax=axes, shrink=0.7)
