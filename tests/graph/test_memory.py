"""Workers whose memory is nearly full: a call that has no room says so, and the graph stays as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from dask import delayed
from dask.distributed import Client
from graph_clusters import assert_clean
from memory_trials import KINDS, STEPS, Outcome, Trial, limited, run, summary, table

from mgraph import CapacityError, DynamicGraph, EdgeBatch
from mgraph.structures import names

LITTLE = "190MiB"  #: a worker that has imported mgraph takes 75 MiB
MILLION = 1_000_000
#: operations, edges or vertices for which that is too little
TOO_MANY = dict.fromkeys(KINDS, 4 * MILLION) | {"pipeline": 6 * MILLION, "vertices": 5 * MILLION}
PART_EDGES = 400_000  #: of a Dask collection, each with two int64 and a float64, for 100 MiB that a limit leaves
FOR_OPS = ("update", "pipeline", "function", "files")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with limited(LITTLE) as client:
        yield client


def check(outcomes: list[Outcome]) -> None:
    """Print the tables; nothing was killed, and no graph is other than it should be."""
    print(f"\n{table(outcomes)}\n\n{summary(outcomes)}")
    assert not [str(outcome.trial) for outcome in outcomes if outcome.wrong]
    assert {outcome.outcome for outcome in outcomes} <= {"done", "CapacityError"}


@pytest.mark.parametrize(
    "kind", [kind if kind == "update" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_a_call_that_has_no_room_is_refused(client, kind):
    trial = Trial(kind, TOO_MANY[kind], weighted=True, reverse=True, ops=kind in FOR_OPS)
    outcome = run(client, trial, LITTLE)
    check([outcome])
    assert outcome.outcome == ("done" if kind == "reads" else "CapacityError")
    assert kind == "reads" or "bytes are needed for" in outcome.text


def test_a_part_of_a_dask_collection_that_has_no_room_as_a_batch_is_refused(client):
    before = sorted(client.run(os.getpid).values())

    def made() -> dict[str, np.ndarray]:
        ids = np.arange(16 * MILLION // 5) % 1000  # 49 MiB, of some 90 that are left
        return {"src": ids, "dst": ids[::-1].copy()}

    with DynamicGraph(client, 1000) as graph:
        graph.insert([1], [2])
        part = client.submit(made, workers=[graph.workers[0]], pure=False)
        with pytest.raises(CapacityError, match=r"\d+ bytes are needed for a part of the source, a dict, as a batch"):
            graph.ingest([part])
        assert (graph.epoch, graph.num_edges) == (1, 1)
        del part
        assert [report.inserted for report in graph.ingest([delayed(([3], [4]))])] == [1]
    assert sorted(client.run(os.getpid).values()) == before
    assert_clean(client)


def test_a_batch_is_not_sent_to_a_worker_that_cannot_take_it(client):
    before = sorted(client.run(os.getpid).values())
    with DynamicGraph(client, 1000, weighted=True) as graph:
        graph.insert([1], [2])
        ids = np.zeros(30 * MILLION, np.uint32)
        with pytest.raises(CapacityError, match=r"rank 0: \d+ bytes are needed for 15000000 operations.*nothing was"):
            graph.insert(ids, ids)
        with graph.pipeline(max_bytes=1 << 40) as pipeline:
            first = pipeline.update(EdgeBatch([2], [3]))
            with pytest.raises(CapacityError, match="nothing was sent"):
                pipeline.update(EdgeBatch(ids, ids))
            last = pipeline.update(EdgeBatch([3], [4]))  # the pipeline goes on
        assert [report.result().inserted for report in (first, last)] == [1, 1]
        with pytest.raises(CapacityError, match="nothing was sent"):
            graph.has_edges(ids, ids)  # which has no operations, and bytes
        assert graph.has_edges([1, 2, 3], [2, 3, 4]).all()
    assert sorted(client.run(os.getpid).values()) == before
    assert_clean(client)


def add_vertices(client: Client, structure: str, n: int) -> bool:
    """Add `n` vertices to a graph of 20,000, and check all that there is then; whether they were added."""
    rng, old = np.random.default_rng(n), 20_000
    keys = np.unique(rng.integers(0, old * old, 200_000))
    src, dst, weight = keys // old, keys % old, rng.random(len(keys), np.float32)
    with DynamicGraph(client, old, structure=structure, weighted=True, reverse=True) as graph:
        graph.insert(src, dst, weight)
        try:
            added = graph.add_vertices(n) == range(old, old + n)
        except CapacityError as error:
            added = False
            print(f"{structure}: {n:,} vertices: {error}")
        assert (graph.epoch, graph.num_vertices) == (1 + added, old + n * added)
        for call in (None, graph.rebalance, graph.reorder):
            with suppress(CapacityError):
                if call is not None:
                    call()
            check_edges(graph, src, dst, weight)
        last = graph.num_vertices - 1
        changed = 0
        with suppress(CapacityError):  # where the vertices took nearly all memory, a batch may be refused
            graph.insert([last, 0], [0, last], [2, 3])
            changed = 1
            assert graph.delete([last], [0]).deleted == 1
            changed = 2
            assert 3 in graph.neighbors([last], "in").weight
            assert graph.has_edges([last, 0], [0, last]).tolist() == [False, True]
        assert graph.epoch == 1 + added + changed
    return added


def check_edges(graph: DynamicGraph, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> None:
    """The graph has these edges, which ascend, and no others, by both directions."""
    n = int(src.max()) + 1
    assert graph.num_edges == len(src)
    with suppress(CapacityError):  # a worker has no room for the offsets of so many rows
        csr = graph.to_csr()
        assert len(csr.offsets) == graph.num_vertices + 1
        assert (csr.offsets[n:] == len(src)).all()
    for direction, rows, ends in (("out", src, dst), ("in", dst, src)):
        csr = graph.neighbors(np.arange(n), direction)
        found = np.repeat(np.arange(n), np.diff(csr.offsets))
        got, want = np.lexsort((csr.dst, found)), np.lexsort((ends, rows))
        np.testing.assert_array_equal(found[got], rows[want])
        np.testing.assert_array_equal(csr.dst[got], ends[want])
        np.testing.assert_array_equal(csr.weight[got], weight[want])


@pytest.mark.slow
def test_vertices_that_are_refused_leave_no_trace(client):
    before = sorted(client.run(os.getpid).values())
    assert [add_vertices(client, "gpma+", n) for n in (100_000, 5 * MILLION)] == [True, False]
    assert sorted(client.run(os.getpid).values()) == before


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("structure", names())
def test_vertices_that_are_refused_leave_no_trace_whatever_their_number(structure):
    with limited("500MiB") as client:
        before = sorted(client.run(os.getpid).values())
        added = [add_vertices(client, structure, n * MILLION) for n in (4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32)]
        assert set(added) == {True, False}
        assert sorted(client.run(os.getpid).values()) == before
        assert_clean(client)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("limit", [LITTLE, "330MiB", "450MiB"])
@pytest.mark.parametrize("structure", [name for name in names() if name != "csr"])
def test_no_call_outgrows_the_limit_of_its_worker(structure, limit):
    """Every kind of call, with a third of what the limit is too little for, with that, and with twice as much.

    Parts of a Dask collection, which Dask makes before anybody can refuse them, take a tenth of what the limit leaves.
    """
    outcomes = []
    scale = (int(limit[:-3]) - 90) / 100
    most = int(PART_EDGES * scale)
    with limited(limit) as client:
        for kind, share in product(KINDS, (0.3, 1, 2)):
            for shape in ({"reverse": True, "ops": kind in FOR_OPS}, {"directed": False}):
                edges = int(TOO_MANY[kind] * share * scale)
                parts = max(2 * STEPS, -(-edges // most))
                trial = Trial(kind, edges, structure, weighted=True, parts=parts, **shape)
                outcomes.append(run(client, trial, limit))
        assert_clean(client)
    check(outcomes)
    assert {outcome.outcome for outcome in outcomes} == {"done", "CapacityError"}
