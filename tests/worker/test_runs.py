"""Algorithms as a worker runs them: compiled before the first run, in the order of a graph that was renumbered."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from ranks import Ranks

from mgraph import EdgeBatch
from mgraph.algorithms import ALGORITHMS, WARM


def test_an_algorithm_is_compiled_before_its_first_run_on_a_shard(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "mgraph")
    log = []
    for name in ("bfs", "connected_components"):
        known = ALGORITHMS[name]

        def warm(shard, known=known):
            log.append((f"warm {known.name}", shard.rank))
            known.warm(shard)

        def run(shard, known=known, **arguments):
            log.append((f"run {known.name}", shard.rank))
            return known.run(shard, **arguments)

        monkeypatch.setitem(ALGORITHMS, name, replace(known, warm=warm, run=run))
    ranks = Ranks((0, 10, 30))
    assert sorted(log) == [("warm bfs", 0), ("warm bfs", 1)]
    for number in range(2):
        for name, arguments in (("bfs", {"source": 3}), ("connected_components", {})):
            ranks.call("run", name=name, result=f"{name} {number}", generation=0, args=arguments)
    for rank in (0, 1):
        said = [what for what, where in log if where == rank]
        run_both = ["run bfs", "run connected_components"]
        assert said == ["warm bfs", run_both[0], "warm connected_components", run_both[1], *run_both]
        assert f"graph g, rank {rank}: compiling connected_components" in caplog.messages
    assert len(caplog.messages) == 2


def test_a_compilation_that_fails_is_tried_again(monkeypatch):
    known, failures = ALGORITHMS["connected_components"], [OSError("no room for a library")]

    def warm(shard):
        if failures:
            raise failures.pop()

    monkeypatch.setitem(ALGORITHMS, "connected_components", replace(known, warm=warm))
    ranks = Ranks((0, 5))
    call = {"name": "connected_components", "result": "r", "generation": 0, "args": {}}
    assert isinstance(ranks.call("run", **call)[0], OSError)
    assert ranks.call("run", **call)[0]["info"]["components"] == 5


def test_what_is_compiled_with_the_graph_is_known():
    assert set(WARM) <= set(ALGORITHMS)


@pytest.mark.parametrize("starts", [(0, 40), (0, 3, 40), (0, 0, 25, 40)])
def test_labels_are_users_ids_whatever_the_order(starts):
    src, dst = np.arange(39, dtype=np.uint32)[::2], np.arange(1, 40, dtype=np.uint32)[::2]
    order = np.random.default_rng(2).permutation(40).astype(np.uint32)
    ranks = Ranks(starts, order=order)
    ranks.update(EdgeBatch(src, dst), 1)
    for generation in (0, 1):
        ranks.call("run", name="connected_components", result="r", generation=generation, args={})
        labels = np.concatenate([answer["values"] for answer in ranks.call("fetch", result="r", column=None)])
        assert labels[ranks.shards[0].order].tolist() == [vertex // 2 * 2 for vertex in range(40)]
        ranks.call("reorder")
