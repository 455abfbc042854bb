"""Conformance: random streams, a state machine and real graphs, against the model and SciPy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from edge_model import BUILD, Model, check, check_csr, edges, random_batch, run_of, step
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mgraph.batch import EdgeBatch
from mgraph.device import Device

SEED = int(os.environ.get("MGRAPH_SEED", "0"))  # another seed, other streams
EXAMPLES = int(os.environ.get("MGRAPH_EXAMPLES", "4" if BUILD == "plain" else "2"))  # 1000 for a long search
GRAPHS = ("CollegeMsg", "cit-HepPh", "debian-deps", "ego-twitter", "email-Eu-core-temporal", "higgs-activity",
          "luxembourg_osm", "moby-thesaurus", "web-NotreDame")  # fmt: skip
SMALL = ("CollegeMsg", "cit-HepPh", "email-Eu-core-temporal")
LARGE = ("ego-twitter", "moby-thesaurus", "web-NotreDame")  #: for the slow set


class Machine(RuleBasedStateMachine):
    """Any sequence of calls leaves a structure equal to its model."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    @initialize(n=st.integers(0, 60))
    def start(self, n):
        self.s, self.model = self.make(n), Model()

    def batch(self, n: int, inserts: float, seed: int) -> EdgeBatch:
        n = n if self.s.n_rows else 0
        return random_batch(self.s, np.random.default_rng(seed), n, inserts, skew=1 + seed % 4)

    @rule(n=st.sampled_from([0, 1, 2, 30, 400]), inserts=st.sampled_from([0.0, 0.1, 0.5, 0.9]), seed=st.integers(0, 99))
    def apply(self, n, inserts, seed):
        step(self.s, self.model, self.batch(n, inserts, seed))

    @rule(pairs=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59), st.sampled_from([1, -1])), max_size=6))
    def apply_few(self, pairs):
        known = [p for p in pairs if max(p[:2]) < self.s.n_rows]
        step(self.s, self.model, edges(self.s, [p[:2] for p in known], op=np.array([p[2] for p in known], np.int8)))

    @rule(seed=st.integers(0, 99))
    def discard(self, seed):
        self.s.discard(self.s.prepare(run_of(self.s, self.batch(200, 0.5, seed))))

    @rule()
    def clone(self):
        self.s = self.s.clone()

    @rule()
    def delete_all(self):
        pairs = list(self.model.edges)
        step(self.s, self.model, edges(self.s, pairs, op=np.full(len(pairs), -1, np.int8)))

    @rule(n=st.integers(0, 20))
    def add_vertices(self, n):
        if self.s.n_rows + n <= 100:
            self.s.add_vertices(n)

    @rule(n=st.integers(0, 80))
    def discard_vertices(self, n):
        self.s.discard_vertices(self.s.prepare_vertices(n))

    @rule(ids=st.lists(st.integers(0, 59), max_size=4))
    def delete_vertices(self, ids):
        known = [v for v in ids if v < self.s.n_rows]
        assert self.s.delete_vertices(known).deleted == self.model.delete_vertices(known)

    @invariant()
    def equal(self):
        if hasattr(self, "s"):
            check(self.s, self.model)


class Streams:
    @pytest.mark.parametrize("seed", range(SEED, SEED + (3 if BUILD == "plain" else 2)))
    def test_random_stream(self, make, seed):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        n = int(rng.choice([1, 2, 7, 40, 400, 5000]))
        s, model = make(n), Model()
        skew = float(rng.choice([1, 2, 6]))
        for _ in range(20 if BUILD == "plain" else 8):
            share = float(rng.choice([0.02, 0.4, 0.6, 0.95]))
            step(s, model, random_batch(s, rng, int(rng.choice([0, 1, 20, 300, 4000])), share, skew))

    def test_state_machine(self, make):
        run_state_machine_as_test(
            lambda: Machine(make),
            settings=settings(
                max_examples=EXAMPLES, stateful_step_count=12, deadline=None, database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip

    @pytest.mark.skipif(BUILD != "plain", reason="real graphs are for the plain build")
    @pytest.mark.parametrize(
        "graph", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in GRAPHS]
    )
    def test_real_graph(self, make, data_dir: Path, graph):
        if self.options and graph not in SMALL:
            pytest.skip("the large ones are for the structure as it is")
        with np.load(data_dir / f"{graph}.npz", allow_pickle=False) as file:
            data = {name: file[name] for name in ("src", "dst", "op") if name in file}
        src, dst, op = data["src"], data["dst"], data.get("op")
        n, weight = int(max(src.max(), dst.max())) + 1, np.arange(len(src), dtype=np.float32) % 97
        s = make(n)
        batch = EdgeBatch(src, dst, weight if s.weighted else None, op)
        inserted = deleted = 0
        for part in np.array_split(np.arange(len(src)), 4):
            counts = s.apply(batch[part[0] : part[-1] + 1])
            inserted, deleted = inserted + counts.inserted, deleted + counts.deleted
        # the last operation on an edge says whether it is there, and its weight
        _, last = np.unique((src.astype(np.uint64) << np.uint64(32) | dst)[::-1], return_index=True)
        last = len(src) - 1 - last
        last = last if op is None else last[op[last] > 0]
        oracle = scipy.sparse.csr_matrix((weight[last], (src[last], dst[last])), shape=(n, n))
        oracle.sort_indices()
        assert inserted - deleted == oracle.nnz
        check_csr(s, oracle.indptr, oracle.indices, oracle.data)
        assert Device.to_host(s.has_edges(src[last], dst[last])).all()
