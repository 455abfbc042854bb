"""A graph with times and no store is moved, and then goes on as one that stayed."""

from __future__ import annotations

import numpy as np
import pytest
from keyed_model import keys_of
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidOption
from mgraph.client.creation import moving

N = 30
DATES = {"times": "datetime64[s]", "window": np.timedelta64(1, "m")}
HOWS = {
    "times": {"n_vertices": N, "times": True, "combine": "sum", "weighted": True},
    "window": {"n_vertices": N, "window": 40, "directed": False, "weighted": True},
    "edges": {"n_vertices": N, "window_edges": 60, "reverse": True},
    "dates": {"keys": "string", "drop_isolated": True, **DATES},
    "months": {"n_vertices": N, "times": "datetime64[M]", "window": np.timedelta64(3, "Y")},
}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())
def test_what_is_late_and_what_expires_after_a_move_is_as_without(how, monkeypatch):
    monkeypatch.setattr(moving, "CHUNK", 20)  # so that there are several
    rng = fresh_rng()
    with DynamicGraph(**how) as moved, DynamicGraph(**how) as stayed:
        for step in range(6):
            src, dst = rng.integers(0, N, (2, 40))
            time = step * 15 + rng.integers(-30, 15, 40)
            if moved._options.times != "int64":
                time = time.astype(moved._options.times)
            if "keys" in how:
                src, dst = keys_of("string", src), keys_of("string", dst)
            weight = rng.integers(1, 9, 40).astype(float) if "weighted" in how else None
            done = [graph.insert(src, dst, weight, time=time) for graph in (moved, stayed)]
            assert counts(done[0]) == counts(done[1])
            for graph in (moved, stayed) if step == 3 else ():
                at = time.argmax()
                graph.delete([src[at]], [dst[at]])  # the latest edge goes, and the window stays
                if "keys" in how:
                    graph.add_vertices(["alone"])
            if step in (1, 3):
                moved.move_to(None, structure="csr")
            assert said(moved) == said(stayed)


def counts(done) -> list[int]:
    return [getattr(done, name) for name in ("epoch", "inserted", "updated", "deleted", "late", "expired")]


def said(graph: DynamicGraph) -> tuple:
    rows = graph.to_csr()
    src = np.repeat(np.arange(graph.num_vertices), np.diff(rows.offsets)).tolist()
    weight = [1.0] * len(src) if rows.weight is None else rows.weight.tolist()
    edges = sorted(zip(src, rows.dst.tolist(), weight, rows.time.tolist(), strict=True))
    return graph.epoch, graph.vertices().tolist(), edges


def test_combined_insertions_in_a_window_stay():
    with DynamicGraph(n_vertices=3, window=5, weighted=True, combine="sum") as graph:
        graph.insert([0, 0], [1, 1], [1, 2], time=[1, 2])
        with pytest.raises(InvalidOption, match="combines the insertions in a window by 'sum'"):
            graph.move_to(None)
        assert graph.weights([0], [1]).tolist() == [3]
