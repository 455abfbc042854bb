"""What a dynamic graph is, in the simplest words: a dict of edges. The oracle of the tests of whole graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mgraph import EdgeBatch

RULES = {"last": lambda _, new: new, "sum": lambda old, new: old + new, "min": min, "max": max}


@dataclass
class GraphModel:
    """Edges and weights; an undirected edge is kept as (smaller, larger)."""

    n_vertices: int
    directed: bool = True
    weighted: bool = False
    combine: str = "last"
    edges: dict[tuple[int, int], float] = field(default_factory=dict)

    def key(self, u: int, v: int) -> tuple[int, int]:
        return (u, v) if self.directed else (min(u, v), max(u, v))

    def update(self, batch: EdgeBatch) -> tuple[int, int, int, int]:
        """Apply a batch; its counts: inserted, updated, deleted, missing."""
        ops = np.ones(len(batch), int) if batch.op is None else batch.op
        weights = np.ones(len(batch)) if batch.weight is None else batch.weight
        existed = dict[tuple[int, int], bool]()
        for u, v, op, w in zip(batch.src, batch.dst, ops, weights, strict=True):
            key, weight = self.key(int(u), int(v)), float(w)
            existed.setdefault(key, key in self.edges)
            if op > 0:
                self.edges[key] = RULES[self.combine](self.edges[key], weight) if key in self.edges else weight
            else:
                self.edges.pop(key, None)
        counts = [0, 0, 0, 0]
        for key, before in existed.items():
            counts[int(before) if key in self.edges else 3 - before] += 1
        return counts[0], counts[1], counts[2], counts[3]

    def delete_vertices(self, ids: Iterable[int]) -> int:
        dead = set(ids)
        gone = [key for key in self.edges if key[0] in dead or key[1] in dead]
        for key in gone:
            del self.edges[key]
        return len(gone)

    def arcs(self) -> dict[tuple[int, int], float]:
        """What the rows hold."""
        back = {} if self.directed else {(v, u): w for (u, v), w in self.edges.items()}
        return {**self.edges, **back}

    def csr(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets, destinations and weights of all rows, ascending."""
        arcs = sorted(self.arcs().items())
        rows = np.array([u for (u, _), _ in arcs], np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.n_vertices))])
        return offsets, np.array([v for (_, v), _ in arcs], np.uint32), np.array([w for _, w in arcs], np.float32)


def random_batch(rng: np.random.Generator, n_vertices: int, n: int, weighted: bool, deletes: float = 0.4) -> EdgeBatch:
    """Insertions and deletions with many repeats and self-loops."""
    src, dst = rng.integers(0, n_vertices, (2, n), dtype=np.uint32)
    op = np.where(rng.random(n) < deletes, -1, 1).astype(np.int8) if deletes else None
    weight = rng.integers(0, 100, n).astype(np.float32) if weighted else None
    return EdgeBatch(src, dst, weight, op)
