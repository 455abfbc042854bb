"""A graph with a store on a cluster of processes: every kind of change is there when it is opened again."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from graph_clusters import assert_clean
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidOption, StoreError, UnknownVertex

N = 60


def change(graph: DynamicGraph, model: GraphModel, rng: np.random.Generator) -> None:
    """One change of a random kind, of the graph and of the model."""
    kind = rng.choice(["update", "pipeline", "ingest", "add", "delete", "move", "wrong"])
    batches = [random_batch(rng, model.n_vertices, 50, model.weighted, rng.choice([0, 0.4])) for _ in range(3)]
    if kind == "update":
        graph.update(batches[0])
        model.update(batches[0])
    elif kind == "pipeline":
        with graph.pipeline() as flight:
            for batch in batches:
                flight.update(batch)
                model.update(batch)
    elif kind == "ingest":
        size = len(graph.workers)

        def parts(rank, size, step):
            return batches[step] if rank == step % size and step < 3 else EdgeBatch([], []) if step < 3 else None

        reports = graph.ingest(parts)
        assert len(reports) == 3, size
        for batch in batches:
            model.update(batch)
    elif kind == "add":
        graph.add_vertices(3)
        model.n_vertices += 3
    elif kind == "delete":
        ids = rng.integers(0, model.n_vertices, 4)
        graph.delete_vertices(ids)
        model.delete_vertices(ids.tolist())
    elif kind == "move":
        graph.rebalance() if rng.random() < 0.5 else graph.reorder()
    else:
        with pytest.raises(UnknownVertex):
            graph.ingest(
                lambda rank, size, step: (
                    (np.array([1, model.n_vertices]), np.array([2, 3])) if rank == size - 1 else None
                )
            )


def assert_graph(graph: DynamicGraph, model: GraphModel) -> None:
    """The graph holds what the model holds; rows of some structures are not sorted."""
    assert (graph.num_vertices, graph.num_edges) == (model.n_vertices, len(model.edges))
    csr = graph.to_csr()
    src = np.repeat(np.arange(model.n_vertices), np.diff(csr.offsets)).tolist()
    weight = [1.0] * len(src) if csr.weight is None else csr.weight.tolist()
    arcs = dict(zip(zip(src, csr.dst.tolist(), strict=True), weight, strict=True))
    assert arcs.keys() == model.arcs().keys()
    assert not model.weighted or arcs == model.arcs()
    if graph.reverse:
        into = np.bincount(np.array([v for _, v in arcs], np.int64), minlength=model.n_vertices)
        np.testing.assert_array_equal(graph.degrees(direction="in"), into)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"directed": False, "weighted": True},
        pytest.param({"reverse": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_opened_on_other_workers_in_other_structures(client3, tmp_path, kind):
    rng, store = fresh_rng(), tmp_path / "store"
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    graph = DynamicGraph(client3, N, store=store, **kind)
    workers = list(graph.workers)
    for turn in range(3):
        with graph:
            for _ in range(6):
                change(graph, model, rng)
            epoch = graph.epoch
            assert graph.store.epoch == graph.durable_epoch == epoch or graph.store.sync == "background"
        structure = str(rng.choice(["gpma+", "slabgraph", "graphvine", "csr"]))
        options = {"structure": structure, "sync": ["always", "background"][turn % 2]}
        if turn == 2:
            options["order"] = "degree"
        graph = DynamicGraph.open(client3, store, workers=workers[: 1 + turn % 3], **options)
        assert graph.epoch == epoch
        assert graph.structure == options["structure"]
        assert (graph.directed, graph.weighted, graph.reverse) == (model.directed, model.weighted, graph.reverse)
        assert_graph(graph, model)
    graph.close()
    assert_clean(client3)


def test_snapshots_saves_and_earlier_epochs(client3, tmp_path):
    rng, models = fresh_rng(), [GraphModel(N)]
    with DynamicGraph(client3, N, store=tmp_path / "s", structure="csr", retain=0, snapshot_bytes=0) as graph:
        for turn in range(6):
            models.append(copy.deepcopy(models[-1]))
            batch = random_batch(rng, N, 80, False)
            graph.update(batch)
            models[-1].update(batch)
            if turn == 3:
                assert graph.snapshot() == 4
                assert graph.store.snapshots == (4,)
        for epoch in (0, 4, 5):
            with graph.at(epoch) as then:
                assert (then.epoch, then.structure, then.workers) == (epoch, "csr", graph.workers)
                assert_graph(then, models[epoch])
                with pytest.raises(InvalidOption, match=f"as of epoch {epoch} and is read-only"):
                    then.insert([1], [2])
                with pytest.raises(InvalidOption, match=f"as of epoch {epoch} and is read-only"):
                    then.snapshot()
        with pytest.raises(InvalidOption, match="epoch is 7; the last one is 6"):
            graph.at(7)
        graph.save(tmp_path / "saved")
        with pytest.raises(InvalidOption, match="choose another folder"):
            graph.save(tmp_path / "saved")
    with DynamicGraph.load(client3, tmp_path / "saved", workers=graph.workers[:1]) as graph:
        assert (graph.epoch, graph.store) == (6, None)
        graph.insert([1], [2])
    with DynamicGraph.open(client3, tmp_path / "s", order="degree") as graph:
        assert_graph(graph, models[6])
    assert_clean(client3)


def test_a_graph_without_a_store_says_so(client3, tmp_path):
    with DynamicGraph(client3, N) as graph:
        graph.insert([1], [2])
        assert (graph.store, graph.durable_epoch) == (None, 0)
        with pytest.raises(InvalidOption, match="no store"):
            graph.snapshot()
        with pytest.raises(InvalidOption, match="no store"):
            graph.at(0)
        assert graph.offsets == {}
        with pytest.raises(InvalidOption, match="no store"):
            graph.update(EdgeBatch([1], [2]), offset=("topic", 1))
        assert graph.insert([1], [3]).epoch == 2


def test_bad_options_change_nothing(client3, tmp_path):
    for options, match in [
        ({"sync": "never"}, "sync 'never' is none of 'always', 'background'"),
        ({"lag_bytes": 0}, "lag_bytes is 0"),
        ({"lag_seconds": 0}, "lag_seconds is 0"),
        ({"store": 5}, "store is 5"),
        ({"store": ""}, "store is ''; it must be the path of a folder"),
    ]:
        with pytest.raises(InvalidOption, match=match):
            DynamicGraph(client3, N, **{"store": tmp_path / "s", **options})
    with pytest.raises(InvalidOption, match="option 'weighted' is none of balance, client, device, .*retain, "):
        DynamicGraph.open(client3, tmp_path / "s", weighted=True)
    with pytest.raises(InvalidOption, match="epoch is -1"):
        DynamicGraph.open(client3, tmp_path / "s", epoch=-1)
    with pytest.raises(StoreError, match=f"{tmp_path}/s holds no store"):
        DynamicGraph.open(client3, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with DynamicGraph(client3, N, store=tmp_path / "s") as graph:
        with pytest.raises(InvalidOption, match=r"holds a store: open it with DynamicGraph\.open"):
            DynamicGraph(client3, N, store=tmp_path / "s")
        with pytest.raises(CapacityError):
            graph.add_vertices(2**32)
        graph.insert([1], [2])
    with pytest.raises(InvalidOption, match="structure 'tree'"):
        DynamicGraph.open(client3, tmp_path / "s", structure="tree")
    with DynamicGraph.open(client3, str(tmp_path / "s")) as graph:
        assert graph.epoch == 1
    assert_clean(client3)


def test_a_source_goes_on_where_the_graph_is(client3, tmp_path):
    source = [EdgeBatch([turn], [turn + 1]) for turn in range(10)]
    with DynamicGraph(client3, N, store=tmp_path / "s") as graph:
        for place, batch in enumerate(source[:4]):
            graph.update(batch, offset=("topic", place))
        assert graph.offsets == {"topic": 3}
        for offset, match in [
            (("topic", 3), "offset is 3 of 'topic', which is in the graph up to 3"),
            (("topic", -1), "offset is -1"),
            ("topic", "offset is 'topic'; it must be the name of a source and a number"),
            (("x" * 1001, 1), "1001 bytes"),
        ]:
            with pytest.raises(InvalidOption, match=match):
                graph.update(source[0], offset=offset)
    with DynamicGraph.open(client3, tmp_path / "s") as graph:
        with graph.pipeline() as flight:
            for place in range(graph.offsets["topic"] + 1, len(source)):
                flight.update(source[place], offset=("topic", place))
        assert (graph.num_edges, graph.epoch, graph.store.offsets) == (10, 10, {"topic": 9})
