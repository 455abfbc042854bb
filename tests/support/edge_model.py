"""What structures are compared with: a plain dict (src, dst) -> weight, and exact comparisons of whole structures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import Counts, Csr, Structure
from mgraph.structures.run import Run, sort_batch

BUILD = os.environ.get("MGRAPH_HOST_BUILD", "plain").replace("quick", "plain")  # which runs about as fast
#: with weights there are all arrays that there are without them, and one more
WEIGHTS = [True] if BUILD in ("address", "thread") else [False, True]
SHRINK = {"plain": 1, "address": 4, "thread": 10, "lanes": 10}[BUILD]  # how much slower the kernels are, about


def scaled(n: int) -> int:
    """`n`, less under the builds that run kernels slowly."""
    return max(n // SHRINK, 1000) if n > 1000 else n


class Model:
    """The specification: a dict, changed one operation after another."""

    def __init__(self) -> None:
        self.edges: dict[tuple[int, int], float] = {}

    def apply(self, batch: EdgeBatch) -> Counts:
        """What `batch` does, the last of repeats counting alone."""
        op = [1] * len(batch) if batch.op is None else Device.to_host(batch.op).tolist()
        weight = [1.0] * len(batch) if batch.weight is None else Device.to_host(batch.weight).tolist()
        pairs = zip(Device.to_host(batch.src).tolist(), Device.to_host(batch.dst).tolist(), strict=True)
        last = dict(zip(pairs, zip(op, weight, strict=True), strict=True))
        inserted = updated = deleted = missing = 0
        for edge, (o, w) in last.items():
            there = edge in self.edges
            if o > 0:
                inserted, updated = inserted + (not there), updated + there
                self.edges[edge] = w
            else:
                deleted, missing = deleted + there, missing + (not there)
                self.edges.pop(edge, None)
        return Counts(inserted, updated, deleted, missing)

    def delete_vertices(self, ids: list[int]) -> int:
        """Delete every edge to and from `ids`; returns how many there were."""
        dead = set(ids)
        gone = [e for e in self.edges if e[0] in dead or e[1] in dead]
        for edge in gone:
            del self.edges[edge]
        return len(gone)

    def csr(self, n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets, dst and weight in the order of (src, dst)."""
        n = len(self.edges)
        ends = np.fromiter(chain.from_iterable(self.edges), np.int64, 2 * n).reshape(n, 2)
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(ends[:, 0], minlength=n_rows))]).astype(np.int64)
        weight = np.fromiter(self.edges.values(), np.float32, n)
        return offsets, ends[order, 1].astype(np.uint32), weight[order]


def ordered(csr: Csr) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A CSR on the host with every row ascending."""
    offsets, dst = Device.to_host(csr.offsets), Device.to_host(csr.dst)
    weight = None if csr.weight is None else Device.to_host(csr.weight)
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((dst, row))
    return offsets, dst[order], None if weight is None else weight[order]


def check_csr(s: Structure, offsets: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> None:
    """Assert that `s` holds exactly these rows, and its invariants."""
    s.check_invariants()
    assert s.num_edges == len(dst)
    csr = s.to_csr()
    got = ordered(csr)
    if s.sorted_rows:
        np.testing.assert_array_equal(Device.to_host(csr.dst), got[1], "rows are said to be sorted")
    np.testing.assert_array_equal(got[0], offsets)
    np.testing.assert_array_equal(got[1], dst)
    if s.weighted:
        np.testing.assert_array_equal(got[2], weight)
    else:
        assert got[2] is None
    np.testing.assert_array_equal(Device.to_host(s.degrees()), np.diff(offsets))


def check(s: Structure, model: Model) -> None:
    """Assert that `s` holds exactly what `model` holds."""
    check_csr(s, *model.csr(s.n_rows))


def step(s: Structure, model: Model, batch: EdgeBatch) -> Counts:
    """Apply `batch` to both, and assert equal counts and equal contents."""
    counts = s.apply(batch)
    assert counts == model.apply(batch)
    check(s, model)
    return counts


def edges(s: Structure, pairs: list[tuple[int, int]], weight: Any = None, op: Any = None) -> EdgeBatch:
    """A batch of pairs; weights are left out where `s` has none."""
    src, dst = np.array(pairs, np.uint32).reshape(-1, 2).T
    return EdgeBatch(src, dst, weight if s.weighted else None, op)


def random_batch(s: Structure, rng: np.random.Generator, n: int, inserts: float = 0.6, skew: float = 1.0) -> EdgeBatch:
    """`n` operations with repeats, a share `inserts` of inserts; the higher `skew`, the more have low sources."""
    src = (s.n_rows * rng.random(n) ** skew).astype(np.uint32)
    dst = rng.integers(0, s.n_vertices, n, dtype=np.uint32)
    op = np.where(rng.random(n) < inserts, 1, -1).astype(np.int8)
    return EdgeBatch(src, dst, rng.random(n, dtype=np.float32) if s.weighted else None, op)


def run_of(s: Structure, batch: EdgeBatch) -> Run:
    """`batch` sorted, as `s.prepare` takes it."""
    return sort_batch(s.device, batch, s.n_rows, s.n_vertices)


def arrays(value: Any) -> Iterator[Any]:
    """Every array that an object holds, in tuples, lists and dicts too."""
    if hasattr(value, "dtype") and hasattr(value, "nbytes"):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from arrays(part)
    elif isinstance(value, dict):
        yield from arrays(list(value.values()))


def snapshot(s: Structure) -> list[Any]:
    """Every bit of a structure: its numbers, and the bytes of its arrays."""
    held = vars(s)
    numbers = sorted((k, v) for k, v in held.items() if isinstance(v, (int, float)))
    return [numbers, *(Device.to_host(a).tobytes() for a in arrays(held))]
