"""What a graph in this process takes that one on a cluster does not, and what it refuses."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from graph_clusters import check_graph
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, ReadError, UnknownVertex
from mgraph.client.options import choose_structure
from mgraph.protocol import ShardState

N = 50


def columns(batch: EdgeBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ("src", "dst", "weight", "op") if getattr(batch, name) is not None}


@pytest.mark.parametrize("kind", [{}, {"directed": False, "weighted": True}, {"reverse": True}], ids=str)
def test_parts_of_every_kind_against_the_model(tmp_path, kind):
    rng = fresh_rng()
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    with DynamicGraph(n_vertices=N, order=rng.permutation(N), **kind) as graph:
        batches = [random_batch(rng, N, 100, model.weighted) for _ in range(7)]
        one, *others = (columns(batch) for batch in batches)
        np.savez(tmp_path / "one.npz", **one)
        pd.DataFrame(others[0]).to_parquet(tmp_path / "two.parquet")
        reports = graph.ingest([tmp_path / "one.npz", tmp_path / "two.parquet"])
        reports += graph.ingest(pd.DataFrame(others[1]))
        reports += graph.ingest([others[2], batches[4]])
        reports += graph.ingest(tuple(others[4].values()) if model.weighted else batches[5])
        renamed = {"from": others[5]["src"], "to": others[5]["dst"], "op": others[5]["op"], "when": [0] * 100}
        if model.weighted:
            renamed["w"] = others[5]["weight"]
        names = {"source": "from", "target": "to", **({"weight": "w"} if model.weighted else {})}
        reports += graph.ingest(renamed, **names)
        assert [report.epoch for report in reports] == list(range(1, 8))
        for report, batch in zip(reports, batches, strict=True):
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
        check_graph(graph, model, rng)


def test_the_state_of_a_graph_is_that_of_its_rank_whenever_it_is_read():
    with DynamicGraph(n_vertices=N, structure="gpma") as graph:
        coordinator = graph._directory.coordinator
        graph.insert([0], [1])
        (state,), rank = coordinator.status.states, coordinator._session.calls
        for i in range(2):
            assert {name: getattr(state, name) for name in ShardState._fields} == rank.state._asdict()
            graph.insert([1], [i])
        assert (state.edges, state.epoch) == (3, 3)


def test_functions_are_called_here_and_need_not_be_pickled():
    calls, lock = [], iter(())  # a generator cannot be pickled

    def source(rank, size, step):
        assert lock is not None
        calls.append((rank, size, step))
        return None if step == 2 else ([step], [step + 1])

    with DynamicGraph(n_vertices=N) as graph:
        assert [report.epoch for report in graph.ingest(source)] == [1, 2]
        assert calls == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
        assert len(graph.ingest(source, steps=1)) == 1


def test_bad_sources_are_refused_before_anything_changed(tmp_path):
    dask_array = pytest.importorskip("dask.array")
    good = EdgeBatch([0], [1])
    with DynamicGraph(n_vertices=N) as graph:
        for source, error, message in [
            (3, InvalidBatch, "a part has type int"),
            ([], InvalidOption, "a list of 0 parts"),
            ([good, ([0], [1, 2])], InvalidBatch, "has shape"),
            ([good, {"src": [0]}], InvalidBatch, "no column 'target'"),
            (dask_array.zeros(3), InvalidOption, "a graph with a Dask client"),
            (["edges.txt"], InvalidOption, r"end in \.npz"),
            (tmp_path / "none.npz", ReadError, "ingest step 0, epoch 1"),
            (([0], [N]), UnknownVertex, rf"dst\[0\] is {N}"),
        ]:
            with pytest.raises(error, match=message):
                graph.ingest(source)
        with pytest.raises(InvalidOption, match="steps belong to a function"):
            graph.ingest(good, steps=2)
        assert (graph.epoch, graph.num_edges) == (0, 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_vertices": None, "order": [0]}, InvalidOption, "an order or a balance is of known vertices"),
        ({"n_vertices": None, "balance": "vertices"}, InvalidOption, "an order or a balance is of known vertices"),
        ({"workers": ["tcp://127.0.0.1:1"]}, InvalidOption, "a graph without a Dask client is in this process"),
        ({"exchange": "tcp"}, InvalidOption, "exchange 'tcp' connects workers"),
        ({"exchange": "pigeon"}, InvalidOption, "exchange 'pigeon' connects workers"),
        ({"structure": "tree"}, InvalidOption, "tree"),
        ({"device": "tpu"}, InvalidOption, "device 'tpu' is none of"),
        ({"order": "hubs"}, InvalidOption, "order 'hubs' is neither"),
        ({"directed": "no"}, InvalidOption, "directed is 'no'; it must be True or False"),
        ({"weighted": None}, InvalidOption, "weighted is None; it must be True or False"),
        ({"client": 5}, TypeError, r"takes a dask\.distributed\.Client, got int"),
        ({"client": pd.DataFrame()}, TypeError, r"got DataFrame; DynamicGraph\.from_pandas makes a graph of it"),
        ({"client": nx.Graph()}, TypeError, r"got Graph; DynamicGraph\.from_networkx makes"),
    ],
)
def test_options(options, error, message):
    with pytest.raises(error, match=message):
        DynamicGraph(**{"n_vertices": N, **options})


def test_what_it_says_of_itself():
    with DynamicGraph(None, N, device="cpu") as graph:
        graph.insert([0], [1])
        assert graph.workers == ("this process",)
        assert (graph.device, graph.exchange) == ("cpu", "loopback")
        assert "this process" in repr(graph)
        assert "on cpu, exchange loopback" in graph._repr_html_()
        assert graph.balance().ratio == 1
        assert graph.nbytes > 0


def test_the_region_of_programs_counts_as_memory():
    with DynamicGraph(n_vertices=100_000, device="cpu") as graph:
        graph.insert([0], [1])
        before = graph.nbytes
        graph.bfs(0).close()
        graph.has_edges([0], [1])
        assert graph.nbytes > before + 10_000  # a bit per vertex, and inboxes


def test_auto_takes_the_structure_that_the_guide_says(tmp_path):
    for device, grows, structure in [("cpu", True, "lpma"), ("cpu", False, "gpma+"), ("cuda", True, "gpma+")]:
        assert choose_structure("auto", device, grows) == structure
        assert choose_structure("hornet", device, grows) == "hornet"
    with DynamicGraph(n_vertices=N, structure="auto", device="cpu") as graph:
        assert graph.structure == "gpma+"
    with DynamicGraph(store=tmp_path / "store", structure="auto", device="cpu", keys=None) as graph:
        graph.insert([0, 1], [1, 2])
        assert (graph.structure, graph.num_edges) == ("lpma", 2)
        assert "lpma on cpu" in repr(graph)
    with DynamicGraph.open(None, tmp_path / "store", device="cpu") as graph:
        assert (graph.structure, graph.num_edges) == ("lpma", 2)
