"""Snapshots on another file system, by fsspec; the log stays in the store's folder."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidOption, StoreError
from mgraph.log import snapshot

fsspec, _ = pytest.importorskip("fsspec"), pytest.importorskip("pyarrow")

N = 30


@pytest.fixture
def url():
    place = f"memory://mgraph-{uuid.uuid4().hex}"
    yield place
    memory = fsspec.filesystem("memory")
    if memory.exists(place):
        memory.rm(place, recursive=True)


def assert_same(graph: DynamicGraph, model: GraphModel) -> None:
    offsets, dst, weight = model.csr()
    csr = graph.to_csr()
    for found, wanted in zip((csr.offsets, csr.dst, csr.weight), (offsets, dst, weight), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_snapshots_are_there_and_the_store_is_opened_from_them(tmp_path, url, monkeypatch):
    monkeypatch.setattr(snapshot, "ROWS", 50)  # so that a file has several batches
    rng, model, store = fresh_rng(), GraphModel(N, weighted=True), tmp_path / "store"
    with DynamicGraph(n_vertices=N, weighted=True, store=store, snapshots=url, retain=2) as graph:
        for turn in range(7):
            batch = random_batch(rng, N, 120, True)
            graph.update(batch)
            model.update(batch)
            if turn in (1, 3, 5):
                assert graph.snapshot() == turn + 1
        assert graph.store.snapshots == (4, 6)
    assert not list(Path(store).glob("snapshot-*"))
    assert len(fsspec.filesystem("memory").glob(f"{url}/snapshot-*/*.arrow")) == 2
    for structure in ("csr", "gpma+"):
        with DynamicGraph.open(None, store, structure=structure) as graph:
            assert_same(graph, model)
            graph.snapshot()
    with pytest.raises(InvalidOption, match="has epochs from 7 on"), DynamicGraph.open(None, store, 3):
        pass
    one = fsspec.filesystem("memory").glob(f"{url}/snapshot-*/*.arrow")[-1]
    content = bytearray(fsspec.filesystem("memory").cat_file(one))
    content[len(content) // 2] ^= 4
    fsspec.filesystem("memory").pipe_file(one, bytes(content))
    with pytest.raises(StoreError, match=r"memory://.*arrow is damaged"):
        DynamicGraph.open(None, store)


def test_saved_and_loaded(url):
    with DynamicGraph(n_vertices=N) as graph:
        graph.insert([1, 2], [2, 3])
        graph.save(url)
        with pytest.raises(InvalidOption, match="choose another folder"):
            graph.save(url)
    with DynamicGraph.load(None, url) as graph:
        assert (graph.epoch, graph.num_edges, graph.has_edges([1], [2])[0]) == (1, 2, True)


def test_a_log_cannot_be_there_and_a_wrong_protocol_is_named(tmp_path, url):
    for made in (lambda: DynamicGraph(store=url), lambda: DynamicGraph.open(None, url)):
        with pytest.raises(InvalidOption, match="a log needs a file system with fsync and locks"):
            made()
    with pytest.raises(StoreError, match="nonsense"):
        DynamicGraph(n_vertices=N, store=tmp_path / "s", snapshots="nonsense://x")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("disks", ["shared", "local"])
def test_a_place_has_the_snapshots_of_one_graph(tmp_path, disks):
    stores, place = [tmp_path / name for name in "abc"], tmp_path / "place"
    how = {"n_vertices": N, "disks": disks}
    with DynamicGraph(store=stores[0], snapshots=place, **how) as graph:
        graph.insert([1], [2])
        with pytest.raises(InvalidOption, match=f"{place} has snapshots of another graph: choose another place"):
            DynamicGraph(store=stores[1], snapshots=place, **how)
        graph.snapshot()
    assert not stores[1].exists()
    shutil.rmtree(place)
    with DynamicGraph(store=stores[2], snapshots=place, **how) as graph:
        graph.snapshot()
    with pytest.raises(StoreError, match=f"{place}/owner.json says that the snapshots there are of another store"):
        DynamicGraph.open(None, stores[0])
