"""A plain model of a graph whose edges have times: a dict from each edge to its insertions since its last deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgraph import DynamicGraph, EdgeBatch, UpdateReport

RULES = {"last": lambda a, b: b, "sum": lambda a, b: np.float32(a + b), "min": min, "max": max}

Edge = tuple[Any, Any]

#: kinds of graphs
KINDS = [
    {},
    {"reverse": True, "weighted": True, "combine": "sum"},
    {"directed": False, "weighted": True, "combine": "max", "structure": "slabgraph"},
    {"directed": False, "structure": "slabgraph"},
    {"weighted": True, "combine": "sum", "structure": "slabgraph"},
]


@dataclass
class TimeModel:
    """Edges with times, by one operation after another."""

    directed: bool = True
    combine: str = "last"
    window: int | None = None
    window_edges: int | None = None
    latest: int | None = None
    made: dict[Edge, list[tuple[int, np.float32]]] = field(default_factory=dict)

    def edges(self) -> dict[Edge, tuple[int, float]]:
        """The time and the weight of each edge."""
        found = {}
        for edge, made in self.made.items():
            total = made[0][1]
            for _, weight in made[1:]:
                total = RULES[self.combine](total, weight)
            found[edge] = made[-1][0], float(total)
        return found

    def update(self, batch: EdgeBatch) -> dict[str, int]:
        """Apply a batch; what it did, by the fields of a report."""
        n, before, named = len(batch), set(self.made), {}
        ops = np.ones(n, int) if batch.op is None else np.broadcast_to(batch.op, n)
        times = np.zeros(n, int) if batch.time is None else batch.time.astype(np.int64)
        weights = np.ones(n, np.float32) if batch.weight is None else batch.weight
        rows = list(zip(batch.src.tolist(), batch.dst.tolist(), ops.tolist(), times.tolist(), weights, strict=True))
        seen = [row[3] for row in rows if row[2] > 0] + ([] if self.latest is None else [self.latest])
        self.latest, late = max(seen, default=None), 0
        for src, dst, op, time, weight in rows:
            edge = (src, dst) if self.directed else (min(src, dst), max(src, dst))
            if op < 0:
                self.made.pop(edge, None)
            elif self._outside(time):
                late += 1
                continue
            elif self.window is not None or self.combine == "last":
                self.made.setdefault(edge, []).append((time, weight))
            else:  # without a window nothing leaves a combination
                total = RULES[self.combine](self.made[edge][0][1], weight) if edge in self.made else weight
                self.made[edge] = [(time, total)]
            named[edge] = op
        too_old = self._oldest()
        for edge in too_old:
            del self.made[edge]
            if edge not in before:
                late += self._insertions(rows, edge)
            named.pop(edge, None)
        inserted = sum(op > 0 and edge not in before for edge, op in named.items())
        deleted = sum(op < 0 and edge in before for edge, op in named.items())
        gone = self._trim(self._outside)
        return {
            "inserted": inserted, "updated": sum(op > 0 for op in named.values()) - inserted,
            "deleted": deleted, "missing": sum(op < 0 for op in named.values()) - deleted,
            "late": late, "expired": len(gone - set(named)) + len(too_old & before),
        }  # fmt: skip

    def expire(self, before: int) -> int:
        """Delete what is earlier; how many edges are gone."""
        return len(self._trim(lambda time: time < before))

    def _oldest(self) -> set[Edge]:
        """The edges that are too many."""
        ranked = sorted((made[-1][0], edge) for edge, made in self.made.items())
        return {edge for _, edge in ranked[: max(0, len(ranked) - (self.window_edges or len(ranked)))]}

    def _insertions(self, rows: list, edge: Edge) -> int:
        same = {edge} if self.directed else {edge, edge[::-1]}
        return sum((src, dst) in same and op > 0 for src, dst, op, _, _ in rows)

    def _outside(self, time: int) -> bool:
        return self.window is not None and time <= (self.latest or 0) - self.window

    def _trim(self, outside: Any) -> set[Edge]:
        """Forget insertions that are outside; where the last one counts, only that one."""
        gone = set()
        for edge, made in list(self.made.items()):
            kept = made[-1:] if self.combine == "last" else made
            kept = [one for one in kept if not outside(one[0])]
            if kept:
                self.made[edge] = kept
            else:
                gone.add(edge)
                del self.made[edge]
        return gone


def edges_of(graph: DynamicGraph) -> dict[Edge, tuple[int, float]]:
    """The time and the weight of each edge of a graph; of an undirected one those with ``src <= dst``."""
    csr = graph.to_csr()
    src = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets)).tolist()
    weight = np.ones(len(src)) if csr.weight is None else csr.weight
    rows = zip(src, csr.dst.tolist(), csr.time.astype(np.int64).tolist(), weight.tolist(), strict=True)
    keys = graph.vertices().tolist() if graph.keys in ("int64", "string") else range(graph.num_vertices)
    found = {(keys[u], keys[v]): (time, w) for u, v, time, w in rows}
    assert len(found) == len(src)
    if not graph.directed:
        assert all(found[v, u] == one for (u, v), one in found.items())
        found = {(u, v): one for (u, v), one in found.items() if u <= v}
    return found


def in_edges_of(graph: DynamicGraph) -> dict[Edge, tuple[int, float]]:
    """As `edges_of`, by the in-edges of a directed graph."""
    csr = graph.neighbors(graph.vertices(), direction="in", time=True)
    dst = np.repeat(graph.vertices(), np.diff(csr.offsets)).tolist()
    weight = np.ones(len(dst)) if csr.weight is None else csr.weight
    rows = zip(csr.dst.tolist(), dst, csr.time.astype(np.int64).tolist(), weight.tolist(), strict=True)
    return {(u, v): (time, w) for u, v, time, w in rows}


def check(graph: DynamicGraph, model: TimeModel, report: UpdateReport | None = None, did: Any = None) -> None:
    """Compare a graph with the model, and a report with what the model did."""
    assert edges_of(graph) == model.edges()
    assert graph.num_edges == len(model.made)
    if graph.directed and graph.reverse:
        assert in_edges_of(graph) == model.edges()
    if report is not None:
        assert {name: getattr(report, name) for name in did} == did


def random_times(rng: np.random.Generator, n: int, now: int, spread: int) -> np.ndarray:
    """Times about `now`, out of order, many of them equal."""
    return now + rng.integers(-spread, spread + 1, n)


def random_timed(
    rng: np.random.Generator, n_vertices: int, n: int, now: int, spread: int, weighted: bool, unit: str | None = None
) -> EdgeBatch:
    """A batch of insertions and a few deletions with times about `now`; whole weights."""
    src, dst = rng.integers(0, n_vertices, (2, n))
    op = None if rng.random() < 0.3 else np.where(rng.random(n) < 0.25, -1, 1)
    times = random_times(rng, n, now, spread)
    weight = (rng.integers(1, 9, n) / 3).astype(np.float32) if weighted else None
    return EdgeBatch(src, dst, weight, op, time=times if unit is None else times.astype(unit))


def named(batch: EdgeBatch, keys: np.ndarray) -> EdgeBatch:
    """A batch of ids in a graph with keys, whose vertices have these."""
    kind = "int64" if keys.dtype == np.int64 else "string"
    return EdgeBatch(keys[batch.src], keys[batch.dst], batch.weight, batch.op, kind, batch.time)


def check_stream(graph: DynamicGraph, model: TimeModel, rng: np.random.Generator, steps: int = 12) -> None:
    """Batches of all sizes, some larger than the window, and now and then a jump after which everything falls out."""
    now = -60
    for step in range(steps):
        now += int(rng.integers(0, 30)) + (5000 if step == steps // 2 else 0)
        spread = int(rng.choice([0, 5, 60]))
        batch = random_timed(rng, 12, int(rng.choice([0, 1, 20, 150])), now, spread, model.combine != "last")
        check(graph, model, graph.update(batch), model.update(batch))
        if step % 5 == 4:
            before = now - int(rng.integers(0, 40))
            report = graph.expire(before)
            assert (report.expired, report.deleted, report.late) == (model.expire(before), 0, 0)
            check(graph, model)
