"""Graphalytics' three rules of when an output matches a reference: exactly, under renaming, within 0.01%."""

from __future__ import annotations

import numpy as np

__all__ = ["EPSILON", "epsilon", "equivalence", "exact"]

EPSILON = 1e-4


def exact(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Where values differ: bool[n]."""
    return expected != found


def equivalence(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Where labels are not those of the reference under one-to-one renaming: bool[n]."""
    return (_renamed(expected, found) != found) | (_renamed(found, expected) != expected)


def _renamed(labels: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The name that the first vertex of its label has, for each vertex."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return names[first[group]] if len(labels) else names


def epsilon(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Where a value is not within 0.01% of the reference's: bool[n]. Infinities match themselves, and 0 only 0."""
    with np.errstate(invalid="ignore"):
        near = np.abs(expected - found) < EPSILON * np.abs(expected)
    near &= np.isfinite(expected)
    return ~(near | (expected == found))
