"""`execute` and `weights` on whole graphs, in this process and on workers, against a replay one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest
from graph_clusters import HERE, assert_clean, on
from plain_graph import fresh_rng
from stream_model import StreamModel, check_answers, random_stream

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, Operations, UnknownVertex
from mgraph.client.batches import mixed
from mgraph.operations import KINDS as KIND_NAMES
from mgraph.structures import names

N = 60
KINDS = {
    "directed": {},
    "undirected, weighted": {"directed": False, "weighted": True, "order": "degree"},
    "all": {"weighted": True, "reverse": True, "permuted": True, "structure": "slabgraph"},
}


def made(client, size, rng, kind) -> tuple[DynamicGraph, StreamModel]:
    options = dict(KINDS[kind])
    if options.pop("permuted", False):
        options["order"] = rng.permutation(N)
    graph = DynamicGraph(n_vertices=N, **on(client, size), **options)
    return graph, StreamModel(graph.directed, graph.weighted)


@pytest.fixture(params=[HERE, 2])
def where(request, client3) -> dict:
    """Where a graph is, as arguments: in this process, or on two workers."""
    return on(client3, request.param)


@pytest.mark.parametrize(
    ("size", "kind"), [*((HERE, kind) for kind in KINDS), (1, "directed"), (2, "undirected, weighted"), (3, "all")]
)
def test_random_streams_against_a_replay(client3, size, kind):
    rng = fresh_rng()
    graph, model = made(client3, size, rng, kind)
    with graph:
        for epoch in range(1, 5):
            stream = random_stream(rng, N, 500, model, graph.reverse, float(rng.choice([1, 3])))
            answers = graph.execute(Operations(*stream))
            check_answers(answers, model.replay(*stream), model.weighted)
            assert answers.report.epoch == graph.epoch == epoch
            assert graph.num_edges == len(model.edges)
            if epoch == 2:
                graph.reorder()
            if epoch == 3:
                graph.rebalance()
        dead = rng.integers(0, N, 5)
        graph.delete_vertices(dead)
        model.delete_vertices(dead.tolist())
        stream = random_stream(rng, N, 500, model, graph.reverse)
        check_answers(graph.execute(Operations(*stream)), model.replay(*stream), model.weighted)
        src, dst = np.divmod(np.arange(N * N), N)
        assert graph.has_edges(src, dst).tolist() == [model.has(u, v) for u, v in zip(src, dst, strict=True)]
        if graph.weighted:
            wanted = [model.out.get(u, {}).get(v, np.nan) for u, v in zip(src.tolist(), dst.tolist(), strict=True)]
            np.testing.assert_array_equal(graph.weights(src, dst), np.array(wanted, np.float32))
    assert_clean(client3)


def test_queries_alone_take_no_epoch(where):
    with DynamicGraph(n_vertices=4, weighted=True, **where) as graph:
        graph.insert([0, 1], [1, 2], [5, 6])
        answers = graph.execute(Operations(["weight", "degree", "weight"], [0, 1, 1], [1, 0, 1]))
        assert (graph.epoch, answers.report.epoch, answers.report.inserted) == (1, 1, 0)
        np.testing.assert_array_equal(answers.weight, np.float32([5, np.nan]))
        empty = graph.execute(Operations([], [], []))
        assert (len(empty.degree), empty.neighbors.weight.dtype, graph.epoch) == (0, np.float32, 1)
        assert graph.weights([], []).dtype == np.float32


BAD = [
    ((["insert", "has_edge"], [0, N], [1, 0]), {}, UnknownVertex, rf"src\[1\] is {N}; the graph has {N} vertices"),
    ((["insert", "degree"], [0, N], [1, 0]), {}, UnknownVertex, rf"src\[1\] is {N}"),
    ((["insert", "delete"], [0, 1], [1, N + 3]), {}, UnknownVertex, rf"dst\[1\] is {N + 3}"),
    ((["degree", "insert"], [0, 1], [1, 2], [5, 6]), {}, InvalidBatch, r"weight\[1\] is 6.0 and the graph is unwei"),
    ((["has_edge"], [0], [1], [5]), {}, InvalidBatch, "there are weights and the graph is unweighted"),
    ((["insert", "weight"], [0, 1], [1, 2]), {}, InvalidBatch, r'kind\[1\] is "weight" and the graph is unweighted'),
    ((["insert", "predecessors"], [0, 1], [1, 2]), {}, InvalidOption, r'kind\[1\] is "predecessors".*reverse=True'),
]


@pytest.mark.parametrize(("given", "options", "error", "message"), BAD)
def test_bad_input_changes_nothing(given, options, error, message):
    with DynamicGraph(n_vertices=N, **options) as graph:
        with pytest.raises(error, match=message):
            graph.execute(Operations(*given))
        assert (graph.epoch, graph.num_edges) == (0, 0)
        with pytest.raises(TypeError, match="execute takes Operations, got tuple"):
            graph.execute(given)
        with pytest.raises(InvalidBatch, match="the graph is unweighted"):
            graph.weights([0], [1])
        with pytest.raises(UnknownVertex, match=rf"src\[0\] is {N}"):
            graph.weights([N], [1])


@pytest.mark.gpu
def test_arrays_on_the_graphs_gpu_are_checked_there():
    cupy, rng, model = pytest.importorskip("cupy"), fresh_rng(), StreamModel()
    with DynamicGraph(n_vertices=N, device="cuda") as graph:
        for epoch in (1, 2):
            kinds, src, dst, _ = random_stream(rng, N, 500, model, False)
            kinds = np.array([KIND_NAMES[kind] for kind in kinds])
            for name, code in (("src", "degree"), ("dst", "insert")):
                at, ends = int(np.flatnonzero(kinds == KIND_NAMES[code])[0]), {"src": src.copy(), "dst": dst.copy()}
                ends[name][at] = N
                with pytest.raises(UnknownVertex, match=rf"{name}\[{at}\] is {N}; the graph has {N} vertices"):
                    graph.execute(Operations(*map(cupy.asarray, (kinds, ends["src"], ends["dst"]))))
                assert graph.epoch == epoch - 1
            answers = graph.execute(Operations(*map(cupy.asarray, (kinds, src, dst))))
            names = list(KIND_NAMES)
            check_answers(answers, model.replay([names[kind] for kind in kinds], src, dst, None), False)


def test_answers_past_the_clients_memory_are_refused(where, monkeypatch):
    with DynamicGraph(n_vertices=N, **where) as graph:
        graph.insert(np.zeros(N, int), np.arange(N))
        ops = Operations(["delete", *["neighbors"] * 1000], [0] * 1001, [1] * 1001)
        monkeypatch.setattr(mixed, "host_memory_limit", lambda: 400_000)
        with pytest.raises(CapacityError, match=r"the answers take 24\d{4} bytes, and the client has room for [24]0+"):
            graph.execute(ops)
        assert (graph.epoch, graph.num_edges) == (1, N)
        monkeypatch.undo()
        answers = graph.execute(ops)
        assert answers.neighbors.offsets[-1] == 1000 * (N - 1)
        assert graph.epoch == 2


def test_a_graph_that_grows_knows_the_vertices_of_earlier_updates(where):
    with DynamicGraph(**where) as graph:
        with pytest.raises(UnknownVertex, match=r"src\[0\] is 0; the graph has 0 vertices by then"):
            graph.execute(Operations(["degree"], [0], [0]))
        with pytest.raises(UnknownVertex, match=r"dst\[1\] is 9; the graph has 8 vertices by then"):
            graph.execute(Operations(["insert", "has_edge", "insert"], [3, 3, 3], [7, 9, 9]))
        assert (graph.num_vertices, graph.epoch) == (0, 0)
        kinds = ["insert", "has_edge", "degree", "insert", "has_edge", "neighbors", "neighbors"]
        answers = graph.execute(Operations(kinds, [3, 3, 7, 3, 9, 3, 9], [7, 7, 0, 9, 3, 0, 0]))
        assert answers.has_edge.tolist() == [True, False]
        assert answers.degree.tolist() == [0]
        assert sorted(answers.neighbors.dst.tolist()) == [7, 9]
        assert (graph.num_vertices, graph.epoch) == (10, 1)


def test_streams_in_flight(where):
    rng, model = fresh_rng(), StreamModel(directed=False, weighted=True)
    options = {"directed": False, "weighted": True, "order": rng.permutation(N)}
    with DynamicGraph(n_vertices=N, **options, **where) as graph:
        streams = [random_stream(rng, N, 200, model, True) for _ in range(5)]
        streams.insert(2, (["neighbors", "degree", "weight"], *rng.integers(0, N, (2, 3)), None))
        with graph.pipeline() as pipe:
            pending = [pipe.execute(Operations(*stream)) for stream in streams]
            report = pipe.update(EdgeBatch([0], [1], [9]))
        for stream, answers in zip(streams, pending, strict=True):
            check_answers(answers.result(), model.replay(*stream), True)
        assert [answers.result().report.epoch for answers in pending] == [1, 2, 2, 3, 4, 5]
        assert report.result().epoch == graph.epoch == 6
        with pytest.raises(UnknownVertex, match=rf"src\[1\] is {N}"), graph.pipeline() as pipe:
            pipe.execute(Operations(["insert", "degree"], [0, N], [1, 0]))
        assert graph.epoch == 6


def test_streams_that_the_workers_make(client3):
    """Parts of several lengths, some without weights, queries alone, and rows; rank order is stream order."""

    def made(rank, size, step):
        kinds = [["insert", "degree", "neighbors", "delete"], ["degree", "weight", "predecessors"]][step == 2]
        if step == 4 or (step == 3 and rank == 1):
            return None
        at = np.random.default_rng([rank, step])
        n = int(at.integers(0, 200))
        drawn = at.choice(kinds, n).tolist(), *at.integers(0, 30, (2, n)), at.random(n) if rank != 2 else None
        return Operations(*drawn)

    for size in (HERE, 3):
        ranks, model = max(size, 1), StreamModel(weighted=True)
        with DynamicGraph(
            n_vertices=30, weighted=True, reverse=True, order=np.arange(30)[::-1], **on(client3, size)
        ) as graph:
            answers = graph.ingest(made)
            for step, one in enumerate(answers):
                parts = [part for rank in range(ranks) if (part := made(rank, ranks, step)) is not None]
                kinds = [list(KIND_NAMES)[code] for part in parts for code in part.kind]
                ones = [np.ones(len(part), np.float32) if part.weight is None else part.weight for part in parts]
                columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("src", "dst")]
                check_answers(one, model.replay(kinds, *columns, np.concatenate(ones)), True)
            assert [one.report.epoch for one in answers] == [1, 2, 2, 3]
            assert graph.epoch == 3
            assert graph.num_edges == len(model.edges)


def test_parts_that_cannot_be_executed(client3):
    with DynamicGraph(n_vertices=N, **on(client3, 2)) as graph:
        for source, error, message in [
            (lambda rank, size, step: Operations([4], [N], [0]), UnknownVertex, rf"src\[0\] is {N}.*step 0, epoch 1"),
            (lambda rank, size, step: Operations([3], [0], [0]), InvalidBatch, r'kind\[0\] is "weight"'),
            (
                lambda rank, size, step: Operations([0], [0], [0]) if rank else EdgeBatch([0], [0]),
                InvalidBatch,
                "some parts of a step are operations and others are not",
            ),
        ]:
            with pytest.raises(error, match=message):
                graph.ingest(source)
        assert (graph.epoch, graph.num_edges) == (0, 0)


def test_the_updates_are_in_the_store(tmp_path):
    rng, model = fresh_rng(), StreamModel(weighted=True)
    with DynamicGraph(n_vertices=N, weighted=True, reverse=True, store=tmp_path / "store") as graph:
        for _ in range(3):
            stream = random_stream(rng, N, 300, model, True)
            check_answers(graph.execute(Operations(*stream)), model.replay(*stream), True)
            graph.execute(Operations(["degree"], [0], [0]))
        stream = random_stream(rng, N, 300, model, True)
        (answers,) = graph.ingest([Operations(*stream)])
        check_answers(answers, model.replay(*stream), True)
        wanted = graph.fingerprint()
    with DynamicGraph.open(None, tmp_path / "store") as graph:
        assert (graph.epoch, graph.fingerprint(), graph.num_edges) == (4, wanted, len(model.edges))
        src, dst = np.array(list(model.edges)).T
        np.testing.assert_array_equal(graph.weights(src, dst), np.array(list(model.edges.values()), np.float32))


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("options", [{"reverse": True}, {"directed": False}], ids=str)
def test_streams_in_device_memory(tmp_path, options):
    import cupy

    rng, n, streams = fresh_rng(), 500, []
    store = tmp_path / "store"
    with DynamicGraph(n_vertices=n, weighted=True, device="cuda", store=store, **options) as graph:
        model = StreamModel(graph.directed, True)
        for size in (1000, 100_000, 1_000):
            streams.append(random_stream(rng, n, size, model, True, 2.0))
        ops = [
            Operations(*(None if c is None else cupy.asarray(c) for c in (one.kind, one.src, one.dst, one.weight)))
            for one in (Operations(*stream) for stream in streams)
        ]
        answers = [graph.execute(ops[0])]
        with graph.pipeline() as pipe:
            pending = pipe.execute(ops[1])
        answers += [pending.result(), *graph.ingest(lambda rank, size, step: None if step else ops[2])]
        for stream, one in zip(streams, answers, strict=True):
            check_answers(one, model.replay(*stream), True)
        edges = np.array(list(model.edges)).T
        wanted = np.array(list(model.edges.values()), np.float32)
        np.testing.assert_array_equal(graph.weights(*edges), wanted)
    with DynamicGraph.open(None, store, device="cpu") as graph:
        assert graph.num_edges == len(wanted)
        np.testing.assert_array_equal(graph.weights(*edges), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"reverse": True}, {"directed": False}], ids=str)
@pytest.mark.parametrize("size", [HERE, 1, 2, 3])
@pytest.mark.parametrize("structure", names())
def test_millions_of_operations_against_a_replay(client3, structure, size, options):
    rng, n = fresh_rng(), 20_000
    with DynamicGraph(n_vertices=n, weighted=True, structure=structure, **on(client3, size), **options) as graph:
        model = StreamModel(graph.directed, True)
        for _ in range(3):
            stream = random_stream(rng, n, 400_000, model, True, 2.0)
            kinds = ["degree" if k in ("neighbors", "predecessors") and rng.random() < 0.99 else k for k in stream[0]]
            stream = kinds, *stream[1:]
            check_answers(graph.execute(Operations(*stream)), model.replay(*stream), True)
            assert graph.num_edges == len(model.edges)
