"""The conformance suite: what every local structure must do.

A structure's test subclasses `StructureConformance`; with options that are not its defaults, `OptionsConformance`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from conformance_bad_input import BadInput
from conformance_clones import Clones
from conformance_failures import Failures
from conformance_races import Races
from conformance_shapes import Shapes
from conformance_streams import Streams
from conformance_vertices import Vertices
from edge_model import WEIGHTS, Model, check, check_csr, edges, random_batch, scaled, step

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import InvalidOption, MgraphError, UnknownVertex
from mgraph.structures import Counts, Structure, create


class Maker:
    """Makes structures for one test: of the class's name and options, on the test's device, weighted or not."""

    def __init__(self, name: str, options: dict[str, Any], device: Device, weighted: bool) -> None:
        self.name, self.options, self.device, self.weighted = name, options, device, weighted

    def __call__(self, n_vertices: int, n_rows: int | None = None) -> Structure:
        return create(self.name, n_vertices, device=self.device, weighted=self.weighted, n_rows=n_rows, **self.options)

    def full(self, n_vertices: int, n: int, seed: int = 7) -> tuple[Structure, Model]:
        """A structure of random edges, and its model."""
        s, model = self(n_vertices), Model()
        batch = random_batch(s, np.random.default_rng(seed), n, inserts=1.0)
        assert s.build(batch) == model.apply(batch)
        return s, model


class OptionsConformance(Shapes, Failures, Streams, Clones):
    """Subclass with a `name` and `options`: they change how edges are laid out and moved, which these tests see."""

    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
    def device(self, request: pytest.FixtureRequest) -> Device:
        return Device.of(request.param)

    @pytest.fixture(  # with weights there are all arrays that there are without them
        params=[True, *(pytest.param(False, marks=pytest.mark.slow) for weighted in WEIGHTS if not weighted)],
        ids=lambda weighted: "weighted" if weighted else "plain",
    )
    def weighted(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    @pytest.fixture(autouse=True)
    def dirty_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """New memory holds what was there before: nothing may count on zeros."""
        real = Device.empty

        def empty(device: Device, n: int, dtype: Any) -> Any:
            array = real(device, n, dtype)
            array.view(np.uint8).fill(0xA5)
            return array

        monkeypatch.setattr(Device, "empty", empty)

    @pytest.fixture
    def make(self, device: Device, weighted: bool) -> Maker:
        return Maker(self.name, self.options, device, weighted)


class StructureConformance(OptionsConformance, Vertices, BadInput, Races):
    """Subclass with a `name`; the structure has its default options."""

    @pytest.fixture(params=WEIGHTS, ids=lambda weighted: "weighted" if weighted else "plain")
    def weighted(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    # --- batches ---

    def test_build(self, make):
        s, model = make.full(200, 3000)
        check(s, model)
        with pytest.raises(InvalidOption, match=str(s.num_edges)):
            s.build(edges(s, [(0, 1)]))

    def test_insert_counts_new_and_known_edges(self, make):
        s, model = make(10), Model()
        assert step(s, model, edges(s, [(1, 2), (3, 4), (1, 0)], [1, 2, 3])) == Counts(inserted=3)
        assert step(s, model, edges(s, [(1, 2), (9, 9)], [5, 6])) == Counts(inserted=1, updated=1)

    def test_delete_counts_known_and_missing_edges(self, make):
        s, model = make(10), Model()
        step(s, model, edges(s, [(1, 2), (3, 4), (1, 0)]))
        assert s.delete(edges(s, [(3, 4), (4, 3), (0, 0)])) == Counts(deleted=1, missing=2)
        model.apply(edges(s, [(3, 4)], op=[-1]))
        check(s, model)

    def test_insert_and_delete_go_by_their_name_not_by_ops(self, make):
        s, model = make(10), Model()
        batch = edges(s, [(1, 2), (3, 4)], op=[-1, 1])
        assert s.insert(batch) == Counts(inserted=2)
        assert s.delete(batch) == Counts(deleted=2)
        check(s, model)

    def test_mixed_ops(self, make):
        s, model = make(10), Model()
        step(s, model, edges(s, [(0, 1), (0, 3), (5, 5)], [1, 2, 3]))
        mixed = edges(s, [(0, 2), (0, 1), (0, 3), (9, 0)], [4, 5, 6, 7], op=[1, -1, 1, -1])
        assert step(s, model, mixed) == Counts(inserted=1, updated=1, deleted=1, missing=1)

    def test_last_repeat_wins(self, make):
        s, model = make(5), Model()
        batch = edges(s, [(1, 1), (2, 2), (1, 1), (2, 2), (3, 3), (3, 3)], [1, 2, 3, 4, 5, 6], op=[1, -1, -1, 1, 1, 1])
        assert step(s, model, batch) == Counts(inserted=2, missing=1)
        if s.weighted:
            assert Device.to_host(s.neighbors([2, 3]).weight).tolist() == [4, 6]

    def test_one_edge_repeated(self, make):
        s, n = make(4), scaled(100_000)
        src = np.full(n, 2, np.uint32)
        op = np.ones(n, np.int8)
        op[:-1:2] = -1
        assert s.apply(EdgeBatch(src, src, np.arange(n) if s.weighted else None, op)) == Counts(inserted=1)
        check_csr(s, np.array([0, 0, 0, 1, 1]), np.array([2]), np.array([n - 1], np.float32))

    def test_single_operations_of_host_memory(self, make):
        rng, (s, model) = np.random.default_rng(11), make.full(40, 400)
        kinds = None, 1, -1, np.ones(1, np.int8), -np.ones(1, np.int8)
        for i in range(300):
            (src, dst), op = rng.integers(0, 40, (2, 1), np.uint32), kinds[rng.integers(len(kinds))]
            weight = np.array([i], np.float32) if s.weighted and i % 3 else None
            batch = EdgeBatch(src, dst, weight, None if op is None else np.full(1, op, np.int8))
            assert s.apply_few(src, dst, op, weight) == model.apply(batch), i
        check(s, model)
        if s.checks_ids:
            with pytest.raises(UnknownVertex):
                s.apply_few(src, np.full(1, 40, np.uint32))
            check(s, model)

    def test_empty_batches(self, make):
        s, model = make.full(20, 100)
        before = s.nbytes
        for op in (None, []):
            assert step(s, model, edges(s, [], op=op)) == Counts()
        assert s.insert(EdgeBatch([], [])) == s.delete(EdgeBatch([], [])) == Counts()
        assert s.nbytes == before

    def test_weights_default_to_one_and_are_updated(self, make):
        s, model = make(6), Model()
        pairs = [(0, 1), (2, 3), (4, 5)]
        step(s, model, edges(s, pairs))
        step(s, model, edges(s, pairs, [np.inf, -0.0, 1 / 3]))
        step(s, model, edges(s, [*pairs[1:], (0, 0)]))
        if s.weighted:
            near = s.neighbors([0, 2, 4])
            found = zip(*(Device.to_host(column).tolist() for column in (near.dst, near.weight)), strict=True)
            assert sorted(found) == [(0, 1), (1, np.inf), (3, 1), (5, 1)]

    # --- reads ---

    def test_has_edges(self, make):
        s, model = make.full(40, 600)
        src, dst = np.divmod(np.arange(1600), 40)
        found = Device.to_host(s.has_edges(src, dst))
        assert found.dtype == bool
        assert found.tolist() == [e in model.edges for e in zip(src.tolist(), dst.tolist(), strict=True)]
        assert s.has_edges([], []).shape == (0,)

    def test_degrees_and_neighbors_in_any_order_with_repeats(self, make):
        s, model = make.full(40, 300)
        ids = np.random.default_rng(1).integers(0, 40, 100)
        rows = [sorted((d, w) for (u, d), w in model.edges.items() if u == v) for v in ids.tolist()]
        degrees = Device.to_host(s.degrees(ids))
        assert degrees.dtype == np.uint32
        assert degrees.tolist() == [len(row) for row in rows]
        csr = s.neighbors(ids)
        assert Device.to_host(csr.offsets).tolist() == [0, *np.cumsum(degrees).tolist()]
        dst = Device.to_host(csr.dst).tolist()
        weight = [1.0] * len(dst) if csr.weight is None else Device.to_host(csr.weight).tolist()
        got = iter(zip(dst, weight, strict=True))
        for row in rows:
            assert sorted(next(got) for _ in row) == [(d, w if s.weighted else 1.0) for d, w in row]
        assert s.degrees([]).shape == s.neighbors([]).dst.shape == (0,)

    def test_common_neighbors(self, make):
        """Hubs of more than 1024 edges, short and empty rows, a row with itself; deletions have left holes."""
        n = 3000
        s, model, rng = make(n), Model(), np.random.default_rng(11)
        hubs = [(v, int(d)) for v, degree in ((5, 2900), (6, 2400), (7, 1700)) for d in rng.permutation(n)[:degree]]
        short = [(int(v), int(d)) for v, d in rng.integers(0, n, (6000, 2)) if v % 9]
        s.insert(batch := edges(s, [*hubs, *short, *((v, v) for v in range(5, 200))]))
        model.apply(batch)
        step(s, model, edges(s, gone := hubs[::3], op=[-1] * len(gone)))
        rows: dict[int, set[int]] = {v: set() for v in range(n)}
        for v, d in model.edges:
            rows[v].add(d)
        assert not rows[0]
        assert len(rows[5]) > len(rows[6]) > len(rows[7]) > 1024
        pairs = [(u, v) for u in (0, 5, 6, 7, 9, 2999) for v in (0, 5, 6, 7, 9, 2999)]
        pairs += (
            rng.integers(0, n, (500, 2)).tolist() + [(v, v) for v in range(20)] + [(v, v + 1) for v in range(5, 60)]
        )
        counts = s.common_neighbors(*np.array(pairs).T)
        assert counts.dtype == np.int64
        expected = [len(rows[u] & rows[v]) for u, v in pairs]
        assert Device.to_host(counts).tolist() == expected
        assert max(expected) > 1024
        assert s.common_neighbors([], []).shape == (0,)

    def test_common_neighbors_of_one_range(self, make):
        s = make(90, n_rows=20)
        s.insert(edges(s, [(0, 89), (0, 3), (19, 89), (19, 19), (0, 19), (7, 3)]))
        assert Device.to_host(s.common_neighbors([0, 0, 7, 19], [19, 7, 19, 19])).tolist() == [2, 1, 0, 2]

    # --- vertices ---

    def test_delete_vertices_empties_rows_and_columns(self, make):
        s, model = make.full(30, 400)
        step(s, model, edges(s, [(7, 7), (7, 8), (8, 7)]))
        assert s.delete_vertices([7, 3, 7]) == Counts(deleted=model.delete_vertices([7, 3]))
        check(s, model)
        assert s.delete_vertices([]) == s.delete_vertices([3]) == Counts()
        assert s.n_vertices == 30
        step(s, model, edges(s, [(7, 3)]))

    def test_delete_vertices_of_a_symmetric_graph(self, make):
        s, model = make(60), Model()
        src, dst = np.random.default_rng(5).integers(0, 60, (2, 500))
        step(s, model, edges(s, [*zip(src, dst, strict=True), *zip(dst, src, strict=True), (3, 3), (5, 7)]))
        gone = model.delete_vertices([3, 9, 30])
        assert s.delete_vertices([3, 9, 30, 9], symmetric=True) == Counts(deleted=gone)
        check(s, model)
        lonely = (5, 7) in model.edges and (7, 5) not in model.edges
        gone = model.delete_vertices([5])
        assert s.delete_vertices([5], symmetric=True) == Counts(deleted=gone, missing=int(lonely))
        check(s, model)

    def test_incident_edges_of_one_range(self, make):
        s, model = make(50, n_rows=10), Model()
        step(s, model, random_batch(s, np.random.default_rng(3), 300, inserts=1.0))
        with pytest.raises(InvalidOption, match="range"):
            s.delete_vertices([1])
        for columns, message in {
            (4,): "needs `rows`", (4, 10): r"rows\[0\] is 10", (50, 4): r"vertices\[0\] is 50", (4, -1): "-1",
        }.items():  # fmt: skip
            with pytest.raises(MgraphError, match=message):
                s.incident(*([column] for column in columns))
        dst, rows = np.array([4, 44], np.uint32), np.array([2], np.uint32)
        run = s.incident(s.device.asarray(dst), s.device.asarray(rows))
        gone = [e for e in model.edges if e[0] == 2 or e[1] in (4, 44)]
        assert Device.to_host(run.keys).tolist() == sorted(u << 32 | d for u, d in gone)
        assert s.apply_run(run) == model.apply(edges(s, gone, op=[-1] * len(gone))) == Counts(deleted=len(gone))
        check(s, model)
