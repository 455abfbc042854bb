"""Ranks agree on their maintained results again after a call that has failed on some of them."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

from mgraph import EdgeBatch
from mgraph.errors import CapacityError
from mgraph.worker.results import maintained
from mgraph.worker.shard import cost
from mgraph.worker.shard.results import Tried

N = 60

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def ranks(monkeypatch) -> Ranks:
    """Two ranks of a path, whose updates may be suspended though it is small."""
    monkeypatch.setattr(cost, "FEW", 0)
    ranks = Ranks([0, N // 2, N], directed=False)
    grow(ranks, range(N - 1))
    return ranks


def grow(ranks: Ranks, sources: Any, step: int = 1) -> None:
    sources = np.array(sources, np.uint32)
    answers = ranks.update(EdgeBatch(sources, (sources + step) % N), ranks.shards[0].epoch + 1)
    assert not [answer for answer in answers if isinstance(answer, Exception)]


def read(ranks: Ranks, live: str, name: str = "connected_components", **args: Any) -> list[Any]:
    """Each rank's answer to a read of a maintained result, or its error."""
    return ranks.call("maintain", live=live, name=name, result=f"of {live}", generation=0, args=args)


def agreed(answers: list[Any]) -> str:
    """How all ranks have updated a result."""
    (how,) = {answer["took"]["how"] for answer in answers}
    return how


def fail() -> None:
    raise CapacityError("rank 1: of this test")


def test_a_result_that_one_rank_has_not_begun_is_begun_by_all(ranks):
    warm_up = ranks.servants[1].warm_up
    ranks.servants[1].warm_up = lambda *_: fail()
    assert all(isinstance(answer, Exception) for answer in read(ranks, "a"))
    ranks.servants[1].warm_up = warm_up
    ranks.reconnect()
    assert [[*shard.maintained] for shard in ranks.shards] == [[], []]
    assert [shard.change_log.first for shard in ranks.shards] == [None, None]
    for live, source in (("b", 0), ("a", N - 1)):
        assert agreed(read(ranks, live, "bfs", source=source)) == "recomputed"
    assert [[*shard.maintained] for shard in ranks.shards] == [["b", "a"]] * 2


def test_the_order_of_results_is_that_of_rank_0(ranks):
    """Removals of vertices update all results, one after another."""
    for live in ("a", "b", "c"):
        agreed(read(ranks, live))
    mine = ranks.shards[1].maintained
    ranks.shards[1].maintained = {live: mine[live] for live in ("c", "a", "b")}
    ranks.reconnect()
    assert [[*shard.maintained] for shard in ranks.shards] == [["a", "b", "c"]] * 2


def test_an_update_that_one_rank_has_not_finished_teaches_none(ranks, monkeypatch):
    """Otherwise one rank suspends the next updates, and the other waits for it in one."""
    monkeypatch.setattr(maintained, "Tried", lambda seconds, *rest: Tried(10.0, *rest))  # far too long
    for live in ("a", "b"):
        assert agreed(read(ranks, live, "bfs", source=0)) == "recomputed"
    grow(ranks, [3], 20)
    device, (first, last) = ranks.shards[1].device, ranks.shards
    synchronize = type(device).synchronize

    def fails(self: Any) -> None:
        if self is device and sys._getframe(1).f_code.co_name == "_updated":
            while first.maintained["a"].tried is None:
                time.sleep(0.001)
            fail()
        synchronize(self)

    with monkeypatch.context() as patch:
        patch.setattr(type(device), "synchronize", fails)
        answers = read(ranks, "a", "bfs", source=0)
    assert all(isinstance(answer, Exception) for answer in answers)
    assert last.maintained["a"].tried is None
    ranks.reconnect()
    assert [shard.maintained["a"].tried for shard in ranks.shards] == [None, None]
    for edge in range(5, 9):
        agreed(read(ranks, "a", "bfs", source=0))
        grow(ranks, [edge], 20)
    assert len({repr(shard.maintained["a"].cost) for shard in ranks.shards}) == 1
    assert agreed(read(ranks, "b", "bfs", source=0)) == "incremental", "only what differs is computed anew"
