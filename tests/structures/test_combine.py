"""What an edge that is inserted again does to its weight: sums, least and greatest, against a dict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgraph import DynamicGraph, EdgeBatch, Operations
from mgraph.errors import InvalidOption
from mgraph.structures import names

RULES = {"last": lambda a, b: b, "sum": lambda a, b: a + b, "min": min, "max": max}


def replay(model: dict, batch: EdgeBatch, how: str, directed: bool) -> None:
    weights = np.ones(len(batch.src)) if batch.weight is None else batch.weight
    ops = np.ones(len(batch.src)) if batch.op is None else np.broadcast_to(batch.op, batch.src.shape)
    for u, v, w, op in zip(batch.src.tolist(), batch.dst.tolist(), weights.tolist(), ops.tolist(), strict=True):
        key = (u, v) if directed else (min(u, v), max(u, v))
        if op < 0:
            model.pop(key, None)
        else:
            model[key] = RULES[how](model[key], w) if key in model else w


def weights_of(graph: DynamicGraph) -> dict:
    csr = graph.to_csr()
    src = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets)).tolist()
    found = {(u, v): w for u, v, w in zip(src, csr.dst.tolist(), csr.weight.tolist(), strict=True)}
    if not graph.directed:
        assert all(found[v, u] == w for (u, v), w in found.items())
        found = {(u, v): w for (u, v), w in found.items() if u <= v}
    return found


def batches(seed: int, n: int, count: int = 6) -> list[EdgeBatch]:
    """Batches with many repeats and self-loops; whole weights, so that sums are exact."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        src, dst = rng.integers(0, n, (2, 200), dtype=np.uint32)
        weight = None if k % 3 == 2 else rng.integers(-4, 9, 200).astype(np.float32)
        op = None if k % 2 else np.where(rng.random(200) < 0.3, -1, 1).astype(np.int8)
        made.append(EdgeBatch(src, dst, weight, op))
    return made


@pytest.mark.parametrize("how", ["sum", "min", "max"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(  # rows sorted in one array, and hashed
    "structure",
    [name if name in ("gpma+", "slabgraph") else pytest.param(name, marks=pytest.mark.slow) for name in names()],
)
def test_as_a_dict(structure: str, directed: bool, how: str) -> None:
    seed = 11
    print(f"seed {seed}")
    model: dict = {}
    with DynamicGraph(
        n_vertices=12, structure=structure, weighted=True, directed=directed, reverse=directed, combine=how
    ) as graph:
        for batch in batches(seed, 12):
            graph.update(batch)
            replay(model, batch, how, directed)
            assert weights_of(graph) == model
        into = graph.neighbors(np.arange(12), "in")
        dst = np.repeat(np.arange(12), np.diff(into.offsets)).tolist()
        back = dict(zip(zip(into.dst.tolist(), dst, strict=True), into.weight.tolist(), strict=True))
        assert {key: w for key, w in back.items() if directed or key[0] <= key[1]} == model


def test_interactions_are_counted_and_come_back_from_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with DynamicGraph(weighted=True, directed=False, combine="sum", store=path) as graph:
        graph.insert([1, 2, 2, 3, 3], [2, 1, 3, 3, 3])
        graph.insert([2, 0], [1, 4])
        graph.snapshot()
        graph.insert([4], [0])
        expected = weights_of(graph)
    assert expected == {(1, 2): 3, (2, 3): 1, (3, 3): 2, (0, 4): 2}
    with DynamicGraph.open(None, path) as graph:
        assert weights_of(graph) == expected
        graph.insert([0], [4])
        assert weights_of(graph)[0, 4] == 3


def test_a_stream_does_not_ask_for_weights_that_it_changes() -> None:
    with DynamicGraph(n_vertices=3, weighted=True, combine="sum") as graph:
        graph.insert([0, 0], [1, 1])
        with pytest.raises(InvalidOption, match=r"kind\[1\] asks for weights"):
            graph.execute(Operations(["insert", "weight"], [0, 0], [1, 1]))
        assert graph.execute(Operations(["insert", "has_edge"], [0, 0], [1, 1])).has_edge.tolist() == [True]
        assert graph.execute(Operations(["weight"], [0], [1])).weight.tolist() == [3]


def test_bad_rules() -> None:
    with pytest.raises(InvalidOption, match="'mean' is none of 'last', 'sum', 'min', 'max'"):
        DynamicGraph(n_vertices=3, weighted=True, combine="mean")
    with pytest.raises(InvalidOption, match="weighted=True"):
        DynamicGraph(n_vertices=3, combine="sum")
