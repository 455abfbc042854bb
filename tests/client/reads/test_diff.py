"""The difference between two epochs, compared with the difference of two dicts of edges."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidOption
from mgraph.client.reads import diff

pytest.importorskip("pandas")

N = 20


def expected(before: GraphModel, after: GraphModel) -> list[tuple]:
    old, new = before.edges, after.edges
    kinds = {key: "inserted" if key not in old else "deleted" if key not in new else "updated" for key in {*old, *new}}
    return sorted((*key, kind) for key, kind in kinds.items() if old.get(key) != new.get(key))


@pytest.mark.parametrize("kind", [{}, {"directed": False, "weighted": True}], ids=str)
def test_it_is_the_difference_of_the_edges(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(diff, "CHUNK", 30)  # so that there are several
    rng = fresh_rng()
    models = [GraphModel(N, kind.get("directed", True), kind.get("weighted", False))]
    with DynamicGraph(n_vertices=N, store=tmp_path / "s", **kind) as graph:
        for turn in range(7):
            models.append(copy.deepcopy(models[-1]))
            if turn == 3:
                graph.add_vertices(5)
                models[-1].n_vertices += 5
            elif turn == 5:
                graph.delete_vertices([1, 2])
                models[-1].delete_vertices([1, 2])
            else:
                batch = random_batch(rng, models[-1].n_vertices, 60, graph.weighted)
                graph.update(batch)
                models[-1].update(batch)
        for a, b in [(0, 7), (0, 0), (2, 4), (3, 4), (4, 6), (6, 1)]:
            frame = graph.changes(a, b)
            found = list(zip(frame.src.tolist(), frame.dst.tolist(), frame.change.tolist(), strict=True))
            assert found == expected(models[a], models[b]), (a, b)
            assert frame.src.dtype == frame.dst.dtype == np.uint32
            assert list(frame.columns) == ["src", "dst", "change", *(["before", "after"] if graph.weighted else [])]
            if graph.weighted:
                for side, model in ((frame.before, models[a]), (frame.after, models[b])):
                    weights = [model.edges.get((u, v), np.nan) for u, v, _ in found]
                    np.testing.assert_array_equal(side, np.array(weights, np.float32))
        assert len(graph.changes(2)) == len(expected(models[2], models[7]))
        with pytest.raises(InvalidOption, match="epochs 3 to 8 are asked for; the last one is 7"):
            graph.changes(3, 8)
    with DynamicGraph(n_vertices=2) as graph, pytest.raises(InvalidOption, match="no store"):
        graph.changes(0)
