"""Graphalytics' six algorithms as calls of a `DynamicGraph`, and the rule by which each is validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from workloads.graphalytics import validate
from workloads.graphalytics.evlp import INFINITE, Dataset

__all__ = ["ALGORITHMS", "Algorithm"]


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    Attributes
    ----------
    name : str
        As in the names of output files.
    run : callable
        ``run(graph, dataset)``: what is timed; the result lies on the device.
    values : callable
        ``values(dataset, array)``: the result by Graphalytics' conventions, from that by ours.
    real : bool
        Whether values are real numbers.
    wrong : callable
        ``wrong(expected, found)``: where values do not match.
    """

    name: str
    run: Callable[[DynamicGraph, Dataset], Any]
    values: Callable[[Dataset, np.ndarray], np.ndarray]
    real: bool
    wrong: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _source(data: Dataset, algorithm: str) -> int:
    return data.place(data.parameter(f"{algorithm}.source-vertex", int))


def _bfs(g: DynamicGraph, data: Dataset) -> Any:
    return g.bfs(_source(data, "bfs"))


def _depths(data: Dataset, found: np.ndarray) -> np.ndarray:
    return np.where(found < 0, INFINITE, found.astype(np.int64))


def _pr(g: DynamicGraph, data: Dataset) -> Any:
    """Exactly so many iterations, in float64."""
    iterations = data.parameter("pr.num-iterations", int)
    return g.pagerank(data.parameter("pr.damping-factor", float), tol=0, max_iter=iterations, dtype="float64")


def _wcc(g: DynamicGraph, data: Dataset) -> Any:
    return g.connected_components()


def _cdlp(g: DynamicGraph, data: Dataset) -> Any:
    return g.label_propagation(data.parameter("cdlp.max-iterations", int))


def _lcc(g: DynamicGraph, data: Dataset) -> Any:
    return g.clustering()


def _sssp(g: DynamicGraph, data: Dataset) -> Any:
    return g.sssp(_source(data, "sssp"), dtype="float64")


def _labels(data: Dataset, found: np.ndarray) -> np.ndarray:
    """The ids that the places stand for: both ascend, so that the smallest stays the smallest."""
    return data.ids[found]


def _as_is(data: Dataset, found: np.ndarray) -> np.ndarray:
    return found


ALGORITHMS = (
    Algorithm("BFS", _bfs, _depths, False, validate.exact),
    Algorithm("PR", _pr, _as_is, True, validate.epsilon),
    Algorithm("WCC", _wcc, _labels, False, validate.equivalence),
    Algorithm("CDLP", _cdlp, _labels, False, validate.exact),
    Algorithm("LCC", _lcc, _as_is, True, validate.epsilon),
    Algorithm("SSSP", _sssp, _as_is, True, validate.epsilon),
)
