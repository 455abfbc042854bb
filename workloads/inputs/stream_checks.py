"""What a format's parser hands over, and the checks that turn it into an `EdgeStream`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mgraph.batch import MAX_VERTICES
from mgraph.errors import ReadError
from workloads.inputs.edges import EdgeStream

__all__ = ["Parsed"]


@dataclass(frozen=True)
class Parsed:
    """A file's columns, unchecked.

    Attributes
    ----------
    columns : dict of str to array, shape (m,)
        By the names of `workloads.inputs.edges.COLUMNS`.
    place : callable
        The name of a row, counted from 0, in messages: "line 17".
    n_vertices, names, directed
        As in `EdgeStream`, where the file says.
    base : int
        The id of the first vertex.
    limits : dict
        The largest "src" and "dst" where the file says.
    """

    columns: dict[str, np.ndarray]
    place: Callable[[int], str]
    n_vertices: int | None = None
    names: np.ndarray | None = None
    directed: bool = True
    base: int = 0
    limits: dict[str, int] = field(default_factory=dict)

    def stream(self, path: Path, relabel: bool, directed: bool | None) -> EdgeStream:
        """The checked stream; `ReadError` names the first bad row of the first bad column. O(m)."""
        self._check_shapes(path)
        if relabel:
            return self._relabelled(path)._checked(path, directed)
        return self._checked(path, directed)

    def _check_shapes(self, path: Path) -> None:
        for name in ("src", "dst"):
            if name not in self.columns:
                raise ReadError(f"{path}: no column {name}; there are: {', '.join(self.columns) or 'none'}")
        m = self.columns["src"].size
        for name, values in self.columns.items():
            if values.shape != (m,):
                raise ReadError(
                    f"{path}: {name} has shape {values.shape}; every column is one-dimensional, as long as src"
                )

    def _relabelled(self, path: Path) -> Parsed:
        src, dst, names = _relabelled(self.columns["src"], self.columns["dst"])
        columns = {**self.columns, "src": src, "dst": dst}
        return replace(self, columns=columns, n_vertices=None, names=names, base=0, limits={})

    def _checked(self, path: Path, directed: bool | None) -> EdgeStream:
        for name, values in self.columns.items():
            if values.dtype.kind not in "iuf":
                raise ReadError(f"{path}: {name} holds {values.dtype}, not numbers (relabel takes ids of any kind)")
            high = self.limits.get(name, MAX_VERTICES - 1)
            problem = _first_problem(name, values, self.base, high)
            if problem:
                raise ReadError(f"{path}: {self.place(problem[0])}: {problem[1]}")
        kept = {name: _kept(name, values, self.base) for name, values in self.columns.items()}
        n = self._count(path, kept["src"], kept["dst"])
        return EdgeStream(
            **kept, n_vertices=n, names=self.names, directed=self.directed if directed is None else directed
        )

    def _count(self, path: Path, src: np.ndarray, dst: np.ndarray) -> int:
        """How many vertices, where the file and its names agree with its ids."""
        least = max(int(src.max()), int(dst.max())) + 1 if len(src) else 0
        n = self.n_vertices if self.n_vertices is not None else least if self.names is None else len(self.names)
        if least > n:
            raise ReadError(f"{path}: vertex id {least - 1} and {n} vertices; ids go up to {n - 1}")
        if self.names is not None and len(self.names) != n:
            raise ReadError(f"{path}: {len(self.names)} names for {n} vertices; each vertex has one")
        return n


def _kept(name: str, values: np.ndarray, base: int) -> np.ndarray:
    """A column in the dtype that `EdgeStream` keeps."""
    if name in ("src", "dst"):
        return (values - values.dtype.type(base) if base else values).astype(np.uint32, copy=False)
    if name == "t":
        return values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
    return values.astype(np.int8 if name == "op" else np.float32, copy=False)


def _first_problem(name: str, values: np.ndarray, low: int = 0, high: int = MAX_VERTICES - 1) -> tuple[int, str] | None:
    """Where and why a column is wrong: the first bad row and a sentence, or None.

    Parameters
    ----------
    name : one of `COLUMNS`
    values : numbers, shape (m,)
    low, high : int
        The smallest and the largest id; for "src" and "dst" only.

    Notes
    -----
    O(m).
    """
    bad = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    reason = "every edge needs a number"
    if name in ("src", "dst") and len(values):
        whole = values == np.floor(values) if values.dtype.kind == "f" else ~bad
        bad, reason = ~whole | (values < low) | (values > high), f"ids are whole numbers from {low} to {high}"
    elif name == "op":
        bad, reason = (values != 1) & (values != -1), "ops are +1 (insert) and -1 (delete)"
    if not bad.any():
        return None
    row = int(bad.argmax())
    return row, f"{name} is {values[row]}; {reason}"


def _relabelled(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids 0, 1, 2 ... in order of first appearance (src before dst in a row), and the old ids as names.

    Returns
    -------
    src, dst : uint32, shape (m,)
    names : str, shape (n,)

    Notes
    -----
    O(m log m).
    """
    old, first, inverse = np.unique(np.stack([src, dst], 1).ravel(), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    new = np.empty(len(old), np.uint32)
    new[order] = np.arange(len(old), dtype=np.uint32)
    pairs = new[inverse].reshape(-1, 2)
    if old.dtype.kind == "f" and (old == np.floor(old)).all():
        old = old.astype(np.int64)
    names = old[order].astype(str) if len(old) else np.empty(0, "U1")
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), names
