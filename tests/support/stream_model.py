"""The oracle of mixed streams: a dict of dicts, to which operations are applied one at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgraph import Answers, Operations
from mgraph.structures import Csr

NAMES = ("insert", "delete", "has_edge", "weight", "degree", "neighbors", "predecessors")
ROWS = ("degree", "neighbors", "predecessors")


@dataclass
class StreamModel:
    """Rows and their reverses; an undirected edge is in the rows of both its ends."""

    directed: bool = True
    weighted: bool = False
    out: dict[int, dict[int, float]] = field(default_factory=dict)
    back: dict[int, dict[int, float]] = field(default_factory=dict)

    def _arcs(self, u: int, v: int) -> list[tuple[int, int]]:
        return [(u, v)] if self.directed else [(u, v), (v, u)]

    def insert(self, u: int, v: int, w: float) -> None:
        for a, b in self._arcs(u, v):
            self.out.setdefault(a, {})[b] = self.back.setdefault(b, {})[a] = w

    def delete(self, u: int, v: int) -> None:
        for a, b in self._arcs(u, v):
            self.out.get(a, {}).pop(b, None)
            self.back.get(b, {}).pop(a, None)

    def has(self, u: int, v: int) -> bool:
        return v in self.out.get(u, {})

    def delete_vertices(self, ids: list[int]) -> None:
        for v in ids:
            for u in list(self.out.get(v, {})):
                self.delete(v, u)
            for u in list(self.back.get(v, {})):
                self.delete(u, v)

    def replay(self, kinds: list[str], src: Any, dst: Any, weight: Any = None) -> dict[str, Any]:
        """The answers to each kind of query, and the counts of the updates."""
        found: dict[str, list[Any]] = {name: [] for name in NAMES}
        last: dict[tuple[int, int], tuple[bool, bool]] = {}
        weight = np.ones(len(kinds)) if weight is None else weight
        for kind, u, v, w in zip(kinds, src.tolist(), dst.tolist(), weight.tolist(), strict=True):
            if kind in ("insert", "delete"):
                key = (u, v) if self.directed else (min(u, v), max(u, v))
                before = last[key][0] if key in last else self.has(u, v)
                last[key] = before, kind == "insert"
            match kind:
                case "insert":
                    self.insert(u, v, float(np.float32(w)) if self.weighted else 1.0)
                case "delete":
                    self.delete(u, v)
                case "has_edge":
                    found[kind].append(self.has(u, v))
                case "weight":
                    found[kind].append(self.out.get(u, {}).get(v, np.nan))
                case "degree":
                    found[kind].append(len(self.out.get(u, {})))
                case "neighbors":
                    found[kind].append(dict(self.out.get(u, {})))
                case "predecessors":
                    found[kind].append(dict(self.back.get(u, {})))
        pairs = list(last.values())
        counts = [pairs.count(pair) for pair in ((False, True), (True, True), (True, False), (False, False))]
        return {**found, "counts": counts}

    @property
    def edges(self) -> dict[tuple[int, int], float]:
        """All edges; an undirected one once, the smaller end first."""
        arcs = {(u, v): w for u, row in self.out.items() for v, w in row.items()}
        return arcs if self.directed else {(u, v): w for (u, v), w in arcs.items() if u <= v}


def random_stream(
    rng: np.random.Generator, n_vertices: int, n: int, model: StreamModel, reverse: bool, skew: float = 1.0
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray | None]:
    """Kinds, src, dst and weights with many repeats. The dst of queries of rows is nonsense, as is unused weight."""
    names = [name for name in NAMES if (model.weighted or name != "weight") and (reverse or name != "predecessors")]
    share = rng.random(len(names)) + 0.05
    kinds = rng.choice(names, n, p=share / share.sum()).tolist()
    src, dst = (n_vertices * rng.random((2, n)) ** skew).astype(np.int64)
    rows = np.isin(kinds, ROWS)
    dst[rows] = rng.integers(-5, 1 << 40, n)[rows]
    weight = None
    if model.weighted and rng.random() < 0.8:
        weight = np.where(np.array(kinds) == "insert", rng.integers(-9, 9, n), np.nan)
    return kinds, src, dst, weight


def check_answers(answers: Answers, expected: dict[str, Any], weighted: bool) -> None:
    """Assert that the answers are those of a replay."""
    assert answers.has_edge.dtype == bool
    assert answers.has_edge.tolist() == expected["has_edge"]
    np.testing.assert_array_equal(answers.weight, np.array(expected["weight"], np.float32))
    assert answers.weight.dtype == np.float32
    assert answers.degree.dtype == np.uint32
    assert answers.degree.tolist() == expected["degree"]
    for name in ("neighbors", "predecessors"):
        check_rows(getattr(answers, name), expected[name], weighted)
    done = answers.report
    assert [done.inserted, done.updated, done.deleted, done.missing] == expected["counts"]


def check_rows(csr: Csr, rows: list[dict[int, float]], weighted: bool) -> None:
    assert (csr.offsets.dtype, csr.dst.dtype) == (np.int64, np.uint32)
    assert csr.offsets.tolist() == [0, *np.cumsum([len(row) for row in rows]).tolist()]
    assert (csr.weight is not None) == weighted
    weight = csr.weight if weighted else np.ones(len(csr.dst), np.float32)
    for i, row in enumerate(rows):
        part = slice(csr.offsets[i], csr.offsets[i + 1])
        assert sorted(zip(csr.dst[part].tolist(), weight[part].tolist(), strict=True)) == sorted(row.items())


def operations(stream: tuple[list[str], np.ndarray, np.ndarray, np.ndarray | None]) -> Operations:
    return Operations(*stream)
