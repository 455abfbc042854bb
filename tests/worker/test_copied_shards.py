"""Copies of shards over a fake exchange: on all ranks or on none, and refused before any takes memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_graph import fresh_rng
from ranks import Ranks, csr_of

from mgraph import CapacityError, EdgeBatch, GraphClosed, MgraphError
from mgraph.errors import Aborted
from mgraph.worker.calls import Calls
from mgraph.worker.vertices import copying

N = 60


def filled(**spec: Any) -> Ranks:
    """Ranks with a graph, whose hosts know the ranks of the graph "h"."""
    ranks = Ranks((0, 20, N), **spec)
    rng = fresh_rng()
    ranks.update(EdgeBatch(*rng.integers(0, N, (2, 500))), 1)
    return ranks


def beside(ranks: Ranks) -> list[Calls]:
    """Ranks of another graph in the same processes."""
    others = [Calls("h", rank, 2, lambda: False, servant.host) for rank, servant in enumerate(ranks.servants)]
    for servant in ranks.servants:
        servant.host = replace(servant.host, threads=3, rank_of=lambda graph, number: others[number])
    return others


@pytest.mark.parametrize("structure", ["gpma+", "csr"])
def test_each_rank_takes_over_its_copy_once(structure):
    ranks = filled(reverse=True)
    others = beside(ranks)
    answers = ranks.call("copy", graph="h", structure=structure)
    assert all(isinstance(answer, dict) for answer in answers), answers
    for other, servant in zip(others, ranks.servants, strict=True):
        other.find("adopt", 0)(exchange="fake")
        assert (other.shard.epoch, other.shard.lo, other.shard.hi) == (1, servant.shard.lo, servant.shard.hi)
        assert other.state.edges == servant.state.edges
        assert (other.shard.spec.graph, other.shard.spec.copy_of, other.shard.spec.structure) == ("h", "g", structure)
        assert (other.device.threads, other.device.background) == (2, True)
        for mine, its in zip(other.shard.structures, servant.shard.structures, strict=True):
            assert mine.name == structure
            for array, same in zip(csr_of(mine), csr_of(its), strict=True):
                np.testing.assert_array_equal(array, same)
        with pytest.raises(MgraphError, match="no shard was copied"):
            other.find("adopt", 0)(exchange="fake")


def test_a_rank_without_memory_refuses_for_all_before_any_copies(monkeypatch):
    left = {0: 1 << 62, 1: 1 << 62}
    ranks = filled(memory_left=lambda rank: left[rank])
    others, needs = beside(ranks), [copying.bytes_of_copy(shard, "gpma+") for shard in ranks.shards]
    monkeypatch.setattr("mgraph.worker.calls.creation.copied", None)  # would fail when called
    left[1] = needs[1] - 1
    first, second = ranks.call("copy", graph="h", structure="gpma+")
    assert isinstance(first, Aborted)
    assert isinstance(second, CapacityError)
    assert str(second).startswith(f"{needs[1]} bytes are needed for a copy of graph g, epoch 1, rank 1")
    assert f"leaves {left[1]}" in str(second)
    assert [other._offered for other in others] == [None, None]


def test_a_rank_that_fails_while_it_copies_leaves_no_copy_and_the_graph_goes_on(monkeypatch):
    ranks = filled(structure="hornet")
    others, before = beside(ranks), ranks.snapshot()
    real = copying.Shard.hold

    def hold(shard: Any, *structures: Any) -> None:
        if shard.spec.copy_of and shard.rank == 0 and structures[0].num_edges:
            raise CapacityError("the clone found no room")
        real(shard, *structures)

    with monkeypatch.context() as patch:
        patch.setattr(copying.Shard, "hold", hold)
        first, second = ranks.call("copy", graph="h", structure="hornet")
    assert isinstance(first, CapacityError)
    assert isinstance(second, Aborted)
    for other in others:  # a copy of another rank is not taken over
        with pytest.raises(MgraphError, match="no shard"):
            other.shard  # noqa: B018
        other.close()
        assert other._offered is None
    ranks.reconnect()
    np.testing.assert_equal(ranks.snapshot(), before)
    assert all(isinstance(answer, dict) for answer in ranks.update(EdgeBatch([0, 59], [1, 2]), 2))


def test_a_copy_that_was_closed_before_it_was_made(monkeypatch):
    ranks = filled()
    answers = ranks.call("copy", graph="h", structure="gpma+")
    assert all(isinstance(answer, GraphClosed) for answer in answers), answers
    assert "graph h, the copy of graph g, epoch 1" in str(answers[0])
