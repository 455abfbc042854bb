"""Graphs to compare methods of finding communities on: 60 of them, with their communities where these are known.

LFR graphs come from networkit, planted partitions and RMAT graphs are drawn here, and real graphs are read from a
folder. None has repeated edges or self-loops, which libraries count in different ways.

References
----------
A. Lancichinetti, S. Fortunato, F. Radicchi, "Benchmark graphs for testing community detection algorithms", Phys. Rev. E
78, 2008 (LFR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mgraph.errors import MgraphError
from workloads.inputs.edges import EdgeStream
from workloads.inputs.generators import of_shape
from workloads.inputs.readers import read

__all__ = ["Clustered", "graphs", "planted"]

UNDIRECTED = ("ego-twitter", "luxembourg_osm")  #: real graphs whose files list each edge once
DEGREE, MOST = 20, 100  #: of LFR graphs: the mean degree and the largest
SMALLEST, LARGEST = 20, 200  #: the sizes of their communities


@dataclass(frozen=True, eq=False)
class Clustered:
    """Graph without repeats and self-loops.

    Attributes
    ----------
    edges : EdgeStream
    communities : int64[n_vertices], optional
        The communities by which the graph was drawn.
    """

    edges: EdgeStream
    communities: np.ndarray | None = None


Make = Callable[[], Clustered]


def graphs(data: Path | None) -> Iterator[tuple[str, Make]]:
    """Yield the names of all graphs, and the functions that make them.

    A function raises `MgraphError` if networkit or the file of a real graph in `data` is missing.
    """
    yield from _lfr_graphs()
    yield from _planted_graphs()
    yield from _rmat_graphs()
    yield from _real_graphs(data)


# ---- drawn graphs ----------------------------------------------------------------------------------------------------


def _lfr_graphs() -> Iterator[tuple[str, Make]]:
    """Yield 20 graphs of several mixings: the share of a vertex's edges that lead to other communities."""
    mixings = {"": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), "weighted": (0.2, 0.4, 0.6), "directed": (0.2, 0.4, 0.6)}
    mixings["directed-weighted"] = (0.3, 0.5)
    for form, values in mixings.items():
        for mixing in values:
            yield _named(f"lfr-5k-{mixing}", form), partial(_formed, partial(lfr, 5_000, mixing, 1), form)
    for mixing in (0.2, 0.3, 0.4, 0.5, 0.6):
        yield f"lfr-20k-{mixing}", partial(_formed, partial(lfr, 20_000, mixing, 2), "")


def _planted_graphs() -> Iterator[tuple[str, Make]]:
    """Yield 18 planted partitions: edges inside 12 per vertex, and some between."""
    equal = np.full(50, 40)
    unequal = np.minimum(20 * (1 - np.random.default_rng(1).random(200)) ** -1.0, 1000).astype(np.int64)
    for form in ("", "weighted", "directed"):
        for outer in (4, 8, 12):
            draw = partial(planted, equal, 12, outer, 3)
            yield _named(f"planted-equal-{outer}", form), partial(_formed, draw, form)
    for form in ("", "weighted", "directed", "directed-weighted"):
        for outer in (4, 8):
            draw = partial(planted, unequal, 12, outer, 4)
            yield _named(f"planted-unequal-{outer}", form), partial(_formed, draw, form)
    many = np.tile(unequal, 8)
    yield "planted-many-8", partial(_formed, partial(planted, many, 12, 8, 5), "")


def _rmat_graphs() -> Iterator[tuple[str, Make]]:
    """Yield 10 RMAT graphs, which have no communities to speak of."""
    for scale in (10, 12, 14):
        for form in ("", "weighted", "directed"):
            yield _named(f"rmat-{scale}", form), partial(_formed, partial(_rmat, scale), form)
    yield "rmat-16", partial(_formed, partial(_rmat, 16), "")


def _rmat(scale: int) -> Clustered:
    return Clustered(of_shape("rmat", scale, 16, seed=6).stream())


def lfr(n: int, mixing: float, seed: int) -> Clustered:
    """Draw an LFR graph of `n` vertices."""
    try:
        import networkit
    except ImportError as error:
        raise MgraphError(f"LFR graphs need networkit (pip install networkit): {error}") from None
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)  # which the same seed needs
    networkit.setSeed(seed, False)
    generator = networkit.generators.LFRGenerator(n)
    generator.generatePowerlawDegreeSequence(DEGREE, MOST, -2)
    generator.generatePowerlawCommunitySizeSequence(SMALLEST, LARGEST, -1)
    generator.setMu(mixing)
    graph, communities = generator.generate(), generator.getPartition()
    networkit.setNumberOfThreads(threads)
    pairs = np.array(list(graph.iterEdges()), np.uint32)
    return Clustered(EdgeStream(pairs[:, 0], pairs[:, 1], n), np.array(communities.getVector(), np.int64))


def planted(sizes: np.ndarray, inner: float, outer: float, seed: int) -> Clustered:
    """Draw a planted partition: communities of `sizes`, with these mean degrees inside and between them."""
    # Scatter the ids.
    rng = np.random.default_rng(seed)
    n = int(sizes.sum())
    communities, ids = np.repeat(np.arange(len(sizes)), sizes), rng.permutation(n)
    begins = np.cumsum(sizes) - sizes

    # Draw the edges inside from the communities by their sizes, and the others from all vertices.
    src = rng.integers(0, n, int(n * inner / 2))
    own = communities[src]
    dst = begins[own] + (rng.random(len(src)) * sizes[own]).astype(np.int64)
    src, dst = (
        np.concatenate([inside, rng.integers(0, n, int(n * outer / 2))]).astype(np.int64) for inside in (src, dst)
    )
    labels = np.empty(n, np.int64)
    labels[ids] = communities
    return Clustered(EdgeStream(ids[src].astype(np.uint32), ids[dst].astype(np.uint32), n), labels)


# ---- real graphs -----------------------------------------------------------------------------------------------------


def _real_graphs(data: Path | None) -> Iterator[tuple[str, Make]]:
    """Yield 12 graphs: 9 without direction and weights, and 3 with both, of which the weights count repeated edges."""
    counted = ("email-Eu-core-temporal", "CollegeMsg", "higgs-activity")
    others = ("debian-deps", "web-NotreDame", "cit-HepPh", "ego-twitter", "moby-thesaurus", "luxembourg_osm")
    for name in (*counted, *others):
        yield name, partial(_formed, partial(_real, data, name), "")
    for name in counted:
        yield f"{name}-directed-counts", partial(_formed, partial(_real, data, name), "directed-counts")


def _real(data: Path | None, name: str) -> Clustered:
    path = None if data is None else data / f"{name}.npz"
    if path is None or not path.exists():
        raise MgraphError(f"{name}.npz is not in the folder of real graphs, {data}")
    stream = read(path, directed=name not in UNDIRECTED)
    inserts = stream if stream.op is None else stream[stream.op > 0]
    return Clustered(replace(inserts, t=None, op=None, names=None))


# ---- forms -----------------------------------------------------------------------------------------------------------


def _named(name: str, form: str) -> str:
    return f"{name}-{form}" if form else name


def _formed(draw: Make, form: str) -> Clustered:
    """Return a graph with the direction and the weights of `form`, without repeats and self-loops."""
    # Drop self-loops, and merge repeats.
    clustered = draw()
    edges, words = clustered.edges, form.split("-")
    pairs = np.column_stack([edges.src, edges.dst])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    directed = "directed" in words
    if not directed:
        pairs = np.sort(pairs, axis=1)
    keys, counts = np.unique(pairs[:, 0].astype(np.uint64) << np.uint64(32) | pairs[:, 1], return_counts=True)

    # Weigh the edges.
    weight = None
    if "counts" in words:
        weight = counts.astype(np.float32)
    elif "weighted" in words:
        weight = np.random.default_rng(len(keys)).lognormal(0, 0.5, len(keys)).astype(np.float32)
    src, dst = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    return replace(clustered, edges=EdgeStream(src, dst, edges.n_vertices, weight=weight, directed=directed))
