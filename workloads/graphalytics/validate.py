"""Graphalytics' three validation rules: exactly, under renaming, within 0.01%."""

from __future__ import annotations

import numpy as np

__all__ = ["EPSILON", "epsilon", "equivalence", "exact"]

EPSILON = 1e-4


def exact(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return a mask of differing values: bool[n]."""
    return expected != actual


def equivalence(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return a mask of labels that differ from the reference under one-to-one renaming: bool[n]."""
    return (_renamed(expected, actual) != actual) | (_renamed(actual, expected) != expected)


def _renamed(labels: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the first vertex's name of each vertex's label."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return names[first[group]] if len(labels) else names


def epsilon(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return a mask of values more than 0.01% off: bool[n].

    Infinities match themselves, and 0 only 0.
    """
    with np.errstate(invalid="ignore"):
        near = np.abs(expected - actual) < EPSILON * np.abs(expected)
    near &= np.isfinite(expected)
    return ~(near | (expected == actual))
