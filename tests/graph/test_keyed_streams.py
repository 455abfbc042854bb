"""Mixed streams of keys against a replay one operation at a time, in this process and on workers, and in the store."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from graph_clusters import HERE, assert_clean, on
from keyed_model import keys_of
from plain_graph import fresh_rng
from stream_model import ROWS, StreamModel, check_answers, random_stream

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, Operations, UnknownVertex
from mgraph.client.batches import mixed
from mgraph.structures import Csr

N = 40


def keyed_stream(rng, n, model, known, kind):
    """A random stream whose queries know the vertices of insertions before them: in numbers, and in keys."""
    kinds, src, dst, weight = random_stream(rng, N, n, model, True)
    kept = []
    for i, (name, u, v) in enumerate(zip(kinds, src.tolist(), dst.tolist(), strict=True)):
        if name == "insert":
            known.update((u, v))
        asked = {u} if name in ROWS else {u, v}
        if name in ("insert", "delete") or asked <= known:
            kept.append(i)
    kinds, src, dst = [kinds[i] for i in kept], src[kept], dst[kept]
    weight = None if weight is None else weight[kept]
    ends = [None if name in ROWS else keys_of(kind, [v])[0] for name, v in zip(kinds, dst.tolist(), strict=True)]
    return (kinds, src, dst, weight), Operations(kinds, keys_of(kind, src), ends, weight, keys=kind)


def numbered(answers, kind):
    """Answers in numbers instead of keys."""
    number = dict(zip(keys_of(kind, np.arange(N)), range(N), strict=True))

    def rows(csr):
        return Csr(csr.offsets, np.array([number[key] for key in csr.dst.tolist()], np.uint32), csr.weight)

    neighbors, predecessors = map(rows, (answers.neighbors, answers.predecessors))
    return mixed.Answers(
        answers.has_edge, answers.weight, answers.degree, neighbors, predecessors, answers.report
    )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "kind", "options"),
    [
        (HERE, "string", {"directed": False}),
        (HERE, "int64", {"reverse": True, "order": "degree"}),
        (2, "string", {"reverse": True, "order": "degree"}),
        (2, "int64", {"directed": False}),
    ],
    ids=str,
)
def test_random_streams_of_keys_against_a_replay(client3, tmp_path, size, kind, options):
    rng, known = fresh_rng(), set()
    model = StreamModel(options.get("directed", True), weighted=True)
    with DynamicGraph(**on(client3, size), keys=kind, weighted=True, store=tmp_path / "s", **options) as graph:
        for epoch in range(1, 5):
            stream, operations = keyed_stream(rng, 20 * 4**epoch, model, known, kind)
            check_answers(numbered(graph.execute(operations), kind), model.replay(*stream), True)
            assert (graph.epoch, graph.num_edges) == (epoch, len(model.edges))
            assert set(graph.vertices().tolist()) == set(keys_of(kind, sorted(known)))
        gone = sorted(known)[::3]
        graph.delete_vertices(keys_of(kind, gone))
        model.delete_vertices(gone)
        known -= set(gone)
        with graph.pipeline() as pipe:
            streams = [keyed_stream(rng, 100, model, known, kind) for _ in range(4)]
            pending = [pipe.execute(operations) for _, operations in streams]
            asked = (
                pipe.execute(Operations(["degree"], keys_of(kind, sorted(known)[:1]), [0], keys="int64"))
                if kind == "int64"
                else None
            )
        for (stream, _), answers in zip(streams, pending, strict=True):
            check_answers(numbered(answers.result(), kind), model.replay(*stream), True)
        assert asked is None or asked.result().degree.tolist() == [len(model.out.get(sorted(known)[0], {}))]
        assert graph.epoch == 9
        then = graph.fingerprint(), set(graph.vertices().tolist())
    with DynamicGraph.open(None, tmp_path / "s") as graph:
        assert (graph.fingerprint(), set(graph.vertices().tolist())) == then
    assert_clean(client3)


def test_the_first_stream_decides_and_columns_may_be_of_other_libraries():
    with DynamicGraph() as graph:
        with pytest.raises(UnknownVertex, match=r"src\[0\] is 'a', which is no vertex of the graph by then"):
            graph.execute(Operations(["degree"], ["a"], [None], keys="string"))
        src = pd.Series(["a", "b", "a"], dtype="category")
        answers = graph.execute(
            Operations(["insert", "degree", "neighbors"], src, pa.array(["b", None, None]), keys="string")
        )
        assert (graph.keys, answers.degree.tolist(), answers.neighbors.dst.tolist()) == ("string", [0], ["b"])
    with DynamicGraph() as graph:
        src, dst = np.array([10**12, 10**12]), pd.Series([7, None], dtype="Int64")
        answers = graph.execute(Operations(["insert", "neighbors"], src, dst, keys="int64"))
        assert (graph.keys, answers.neighbors.dst.tolist()) == ("int64", [7])
        assert graph.execute(Operations(["has_edge"], [7], [7])).has_edge.tolist() == [False]  # numbers are keys, too


BAD = [
    (["insert", "has_edge", "insert"], ["a", "a", "a"], ["n", "z", "z"], UnknownVertex, r"dst\[1\] is 'z'"),
    (["delete", "has_edge"], ["a", "z"], ["z", "a"], UnknownVertex, r"src\[1\] is 'z'"),
    (["insert", "predecessors"], ["n", "a"], ["m", "a"], InvalidOption, r'kind\[1\] is "predecessors"'),
    (["insert", "weight"], ["n", "a"], ["m", "a"], InvalidBatch, r'kind\[1\] is "weight"'),
]


@pytest.mark.parametrize("flight", [False, True])
def test_a_stream_that_is_refused_leaves_no_key(flight, monkeypatch):
    def execute(operations):
        if not flight:
            return graph.execute(operations)
        with graph.pipeline() as pipe:
            return pipe.execute(operations).result()

    with DynamicGraph(keys="string") as graph:
        graph.insert(["a"], ["b"])
        for kinds, src, dst, error, message in BAD:
            with pytest.raises(error, match=message):
                execute(Operations(kinds, src, dst, keys="string"))
        with pytest.raises(InvalidBatch, match="the stream has vertex ids and the graph has keys of the kind 'string'"):
            execute(Operations(["insert"], [0], [1]))
        monkeypatch.setattr(mixed, "host_memory_limit", lambda: 8)
        with pytest.raises(CapacityError, match="the client has room for"):
            execute(Operations(["insert", "neighbors"], ["n", "a"], ["m", ""], keys="string"))
        monkeypatch.undo()
        assert (graph.vertices().tolist(), graph.epoch, graph.num_edges) == (["a", "b"], 1, 1)
        answers = execute(Operations(["delete", "delete", "delete"], ["a", "a", "z"], ["z", "z", "b"], keys="string"))
        assert (answers.report.missing, graph.epoch, graph.num_vertices) == (2, 2, 2)
    with (
        DynamicGraph(n_vertices=3) as graph,
        pytest.raises(InvalidBatch, match="the stream has string keys and the gra"),
    ):
        execute(Operations(["insert"], ["a"], ["b"], keys="string"))
    with pytest.raises(InvalidOption, match="keys 'text' is none of"):
        Operations([], [], [], keys="text")
    with pytest.raises(InvalidBatch, match=r"dst\[1\] is missing"):
        Operations(["degree", "insert"], ["a", "b"], [None, None], keys="string")
    with pytest.raises(InvalidBatch, match="src has shape"):
        Operations(["degree"], ["a", "b"], ["b"], keys="string")
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(InvalidBatch, match="a part has string keys"):
        graph.ingest([Operations(["insert"], ["a"], ["b"], keys="string"), EdgeBatch([0], [1])])
