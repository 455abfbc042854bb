"""Distinct values of an array, by a sort."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["distinct"]


def distinct(values: Any) -> Any:
    """Return the distinct values of a 1-d NumPy or CuPy array, ascending. O(n log n).

    `numpy.unique` hashes from NumPy 2.3 on, and takes 1.3 s for 1M different int64 instead of 0.03.
    """
    ordered = values.copy()
    ordered.sort()
    first = np.ones_like(ordered, dtype=bool)  # CuPy's for an array of CuPy
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
