"""Method `overlap`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Runs
from mgraph.algorithms.pairs.jaccard import check, result, run_overlap, warm

__all__ = ["ALGORITHM", "overlap"]


def overlap(self: Runs[Any], pairs: Any) -> np.ndarray:
    """Return the overlap coefficient of each pair of vertices: common neighbours / smaller degree of the two.

    Parameters
    ----------
    pairs : array-like, shape (k, 2)
        Vertices, by id or key; a pair may come several times, and a vertex be paired with itself.

    Returns
    -------
    float64[k]
        In this process: ``|N(u) & N(v)| / min(|N(u)|, |N(v)|)``, 0 if one of them has no neighbours. Neighbours, costs
        and errors are those of `jaccard`.

    Notes
    -----
    After M. K. Vijaymeena, K. Kavitha, "A survey on similarity measures in text mining", 2016.

    Examples
    --------
    >>> g.insert([0, 0, 1, 1], [2, 3, 3, 4])  # of 5 vertices  # doctest: +SKIP
    >>> g.overlap([[0, 1], [0, 0], [2, 3]])  # doctest: +SKIP
    array([0.5, 1. , 0. ])
    """
    scores: np.ndarray = self.run("overlap", pairs=pairs)
    return scores


ALGORITHM = Algorithm(
    name="overlap",
    check=check,
    run=run_overlap,
    columns={"pair": "value", "score": "value"},
    scalars=("pairs",),
    warm=warm,
    result=result,
)
