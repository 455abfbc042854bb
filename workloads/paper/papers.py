"""Experiments of each paper: its structures, its graphs, and its measurements with their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workloads.paper import experiments as e
from workloads.paper.experiments import Run
from workloads.paper.mixed import mixed
from workloads.paper.streams import Real, StandIn, Stream

__all__ = ["PAPERS", "Paper"]


@dataclass(frozen=True)
class Paper:
    """A paper's experiments.

    Attributes
    ----------
    title : str
    structures : tuple of str
        The paper's own first; then ours in place of its competitors.
    graphs : tuple of StandIn or Real
    experiments : dict of str to callable
        ``experiment(run, stream)`` by name.
    """

    title: str
    structures: tuple[str, ...]
    graphs: tuple[StandIn | Real, ...]
    experiments: dict[str, Callable[[Run, Stream], None]]


M = 10**6
POWERS = tuple(1 << k for k in range(16, 23))
TENS = (10**4, 10**5)

PAPERS = {
    "gpma": Paper(
        "Accelerating Dynamic Graph Analytics on GPUs (GPMA and GPMA+)",
        ("gpma+", "gpma", "csr"),
        (
            StandIn("Graph500", "rmat", M, 200 * M),
            StandIn("Random", "uniform", M, 200 * M),
            Real("web-NotreDame"),
            Real("higgs-activity"),
        ),
        {
            "slides": partial(e.slides, sizes=tuple(1 << k for k in range(0, 21, 2))),
            "windows": partial(
                e.windows, shares=(1e-4, 1e-3, 1e-2), algorithms=("BFS", "components", "PageRank to 1e-3")
            ),
        },
    ),
    "graphvine": Paper(
        "GraphVine: a data structure to optimize dynamic graph processing on GPUs",
        ("graphvine", "hornet", "csr"),
        (
            StandIn("co-papers-dblp", "rmat", 540_000, 30 * M),
            StandIn("hugetrace-00020", "road", 16 * M, 48 * M),
            StandIn("rgg_n_2_24_s0", "uniform", 17 * M, 266 * M),
            Real("cit-HepPh"),
        ),
        {"build": e.build, "batches": partial(e.batches, sizes=(10**5, M, 10 * M))},
    ),
    "slabgraph": Paper(
        "Dynamic Graphs on the GPU (hash tables of slabs)",
        ("slabgraph", "hornet", "csr"),
        (
            StandIn("road_usa", "road", 23_900_000, 57_710_000),
            StandIn("soc-LiveJournal1", "rmat", 4_800_000, 85_700_000),
            StandIn("hollywood-2009", "rmat", 1_100_000, 112_800_000),
            Real("luxembourg_osm"),
        ),
        {
            "batches": partial(e.batches, sizes=POWERS),
            "vertices": partial(e.vertices, sizes=POWERS[:5]),
            "build": e.build,
            "loading": partial(e.loading, sizes=POWERS[4:]),
            "triangles": partial(e.triangle_counts, size=1 << 22, times=5),
            "queries": partial(e.queries, sizes=(1 << 20,)),
        },
    ),
    "lpma": Paper(
        "LPMA: a leveled packed memory array, and mixed batches (Opera)",
        ("lpma:strategy=hybrid", "lpma:strategy=bottom-up", "lpma:strategy=top-down", "gpma+", "hornet", "slabgraph"),
        (
            StandIn("Orkut", "rmat", 3 * M, 117 * M),
            StandIn("Pokec", "rmat", 1_600_000, 30_600_000),
            StandIn("Road", "road", 1_400_000, 3_800_000),
            Real("cit-HepPh"),
            Real("higgs-activity"),
            Real("luxembourg_osm"),
        ),
        {
            "loading": partial(e.loading, sizes=(10**4, 10**5, M)),
            "queries": partial(e.queries, sizes=TENS),
            "analytics": partial(e.analytics, algorithms=("triangles", "PageRank to 1e-3", "BFS")),
            "mixed": partial(mixed, sizes=TENS, share=0.03),
        },
    ),
    "hornet": Paper(
        "Hornet: an efficient data structure for dynamic sparse graphs and matrices on GPUs",
        ("hornet", "csr", "slabgraph"),
        (
            StandIn("soc-LiveJournal1", "rmat", 4_850_000, 69 * M),
            StandIn("europa_osm", "road", 50_910_000, 108_100_000),
            StandIn("kron_g500-logn21", "rmat", 2_100_000, 182_100_000),
            Real("web-NotreDame"),
        ),
        {
            "build": e.build,
            "batches": partial(e.batches, sizes=tuple(10**k for k in range(8))),
            "analytics": partial(e.analytics, algorithms=("BFS", "PageRank to 1e-3")),
        },
    ),
}
