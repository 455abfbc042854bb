"""Graphalytics' six algorithms as calls of a `DynamicGraph`, with their validation rules."""

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
    """An algorithm of Graphalytics.

    Attributes
    ----------
    name : str
        The name in output files.
    run : callable
        ``run(graph, dataset)``: the timed call; the result lies on the device.
    values : callable
        ``values(dataset, array)``: the result by Graphalytics' conventions, from ours.
    real : bool
        True for values that are real numbers.
    wrong : callable
        ``wrong(expected, actual)``: a mask of values that do not match.
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


def _depths(data: Dataset, depths: np.ndarray) -> np.ndarray:
    return np.where(depths < 0, INFINITE, depths.astype(np.int64))


def _pr(g: DynamicGraph, data: Dataset) -> Any:
    """Run a fixed number of iterations, in float64."""
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


def _labels(data: Dataset, places: np.ndarray) -> np.ndarray:
    """Return the ids of places.

    Both ascend, so the smallest label stays the smallest.
    """
    return data.ids[places]


def _as_is(data: Dataset, values: np.ndarray) -> np.ndarray:
    return values


ALGORITHMS = (
    Algorithm("BFS", _bfs, _depths, False, validate.exact),
    Algorithm("PR", _pr, _as_is, True, validate.epsilon),
    Algorithm("WCC", _wcc, _labels, False, validate.equivalence),
    Algorithm("CDLP", _cdlp, _labels, False, validate.exact),
    Algorithm("LCC", _lcc, _as_is, True, validate.epsilon),
    Algorithm("SSSP", _sssp, _as_is, True, validate.epsilon),
)
