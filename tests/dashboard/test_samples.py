"""What the page of Dask's dashboard shows, from the metrics that workers send with their heartbeats."""

from __future__ import annotations

from typing import Any

from mgraph.dashboard.samples import FORGET_SECONDS, KEPT, Samples


def said(graph: str, rank: int, operations: int, edges: int = 5, seconds: float = 0.002) -> dict[str, Any]:
    return {"graph": graph, "rank": rank, "operations": operations, "edges": edges, "last_batch_seconds": seconds}


def metrics(**workers: list[dict[str, Any]]) -> dict[str, Any]:
    return {worker: {"mgraph": {"shards": shards}} for worker, shards in workers.items()}


def test_rates_edges_and_the_slowest_rank_of_each_graph():
    samples = Samples()
    samples.take(10.0, {**metrics(a=[said("g", 1, 100)], b=[said("g", 0, 50), said("h", 0, 7)]), "c": {"cpu": 3}})
    assert [(shard["graph"], shard["rank"], shard["worker"]) for shard in samples.shards] == [
        ("g", 0, "b"),
        ("g", 1, "a"),
        ("h", 0, "b"),
    ]
    samples.take(12.0, metrics(a=[said("g", 1, 400, seconds=0.5)], b=[said("g", 0, 60, 20)]))
    track = samples.tracks["g"]
    assert (list(track.times), list(track.rates), list(track.edges)) == ([10.0, 12.0], [0.0, 155.0], [10, 25])
    assert list(track.latencies) == [2.0, 500.0]
    samples.take(13.0, metrics(a=[said("g", 1, 3)]))  # opened again after a loss: it counts from 0
    assert track.rates[-1] == 0.0
    samples.take(14.0, metrics(a=[said("g", 1, 13)]))
    assert track.rates[-1] == 10.0


def test_old_samples_and_closed_graphs_are_forgotten():
    samples = Samples()
    for second in range(KEPT + 50):
        samples.take(float(second), metrics(a=[said("g", 0, second)]))
    assert len(samples.tracks["g"].times) == KEPT
    samples.take(KEPT + 50 + FORGET_SECONDS, metrics(a=[said("h", 0, 1)]))
    assert [shard["graph"] for shard in samples.shards] == ["h"]
    assert list(samples.tracks) == ["h"]
