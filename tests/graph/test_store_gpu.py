"""A store that a graph on GPUs wrote makes the same graph on GPUs and on the CPU, and the other way round."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client
from graph_clusters import Clusters, assert_clean, gpu_workers
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng
from test_store import assert_graph

from mgraph import DynamicGraph, EdgeBatch

N = 200


def there_and_back(client: Client, path: Path, kind: dict[str, bool]) -> None:
    """Batches from host and device memory, and made on the workers; a snapshot; opened on each device in turn."""
    import cupy

    rng = fresh_rng()
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    graph = DynamicGraph(client, N, device="cuda", store=path, sync="background", **kind)
    for device in ("cpu", "cuda", "cuda"):
        with graph:
            for turn in range(4):
                batch = random_batch(rng, model.n_vertices, 1000, model.weighted)
                model.update(batch)
                columns = (batch.src, batch.dst, batch.weight, batch.op)
                if turn % 2 and graph.device == "cuda":
                    batch = EdgeBatch(*(None if c is None else cupy.asarray(c) for c in columns))
                graph.update(batch)
                if turn == 1:
                    graph.snapshot()
            part = random_batch(rng, model.n_vertices, 500, model.weighted)
            graph.ingest(partial(_first, part))
            model.update(part)
            dead = rng.integers(0, N, 3)
            graph.delete_vertices(dead)
            model.delete_vertices(dead.tolist())
            graph.add_vertices(2)
            model.n_vertices += 2
            epoch = graph.epoch
            with graph.at(epoch - 1) as then:
                before = copy.deepcopy(model)
                before.n_vertices -= 2
                assert_graph(then, before)
        order = rng.permutation(model.n_vertices) if device == "cuda" else None
        graph = DynamicGraph.open(client, path, device=device, order=order)
        assert (graph.epoch, graph.device) == (epoch, device)
        assert_graph(graph, model)
    graph.close()
    assert_clean(client)


def _first(part, rank, size, step, device):
    """All of a part on rank 0, on its device."""
    if (rank, step) != (0, 0):
        return None
    xp = device.xp
    return tuple(None if c is None else xp.asarray(np.asarray(c)) for c in (part.src, part.dst, part.weight, part.op))


KINDS = [{}, {"directed": False, "weighted": True}]


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_one_gpu(tmp_path):
    with gpu_workers(1) as client:
        for number, kind in enumerate(KINDS):
            there_and_back(client, tmp_path / str(number), kind)


@pytest.mark.multigpu(2)
@pytest.mark.timeout(600)
def test_two_gpus(clusters: Clusters, tmp_path: Path) -> None:
    with clusters.lend(2, gpus=True) as client:
        for number, kind in enumerate(KINDS):
            there_and_back(client, tmp_path / str(number), kind)
