"""Maintained results on ranks of which one misses the vote on a removal of vertices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import Ranks

from mgraph import EdgeBatch
from mgraph.worker.commit.ballot import Ballot

#: vertices 0, 1 and 5 are alone beside two triangles
TRIANGLES = np.array([[2, 3, 4, 6, 7, 8], [3, 4, 2, 7, 8, 6]], np.uint32)
LONE = np.array([0, 1, 5], np.uint32)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "connected_components": {},
    "leiden": {"resolution": 1.0, "max_levels": 64, "seed": 0, "quality": "modularity"},
}

pytestmark = pytest.mark.timeout(60)


def read(ranks: Ranks, name: str) -> tuple[str, list[int]]:
    """How a maintained result was brought up to date, and its first column."""
    given = {"generation": ranks.shards[0].generation, "args": ARGUMENTS[name]}
    answers = ranks.call("maintain", live="a", name=name, result="of a", **given)
    (how,) = {answer["took"]["how"] for answer in answers}
    return how, np.concatenate([shard.results["of a"].column(None) for shard in ranks.shards]).tolist()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_rank_that_missed_the_vote_on_a_removal_keeps_no_result_with_old_ids(
    monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    ranks = Ranks([9 * rank // size for rank in range(size + 1)], directed=False)
    ranks.update(EdgeBatch(*TRIANGLES), 1)
    assert read(ranks, name) == ("recomputed", [0, 1, 2, 2, 2, 5, 6, 6, 6])

    # The last rank votes, and is interrupted before it learns the outcome.
    vote, late = Ballot._vote, ranks.servants[-1].ballot

    def interrupted(ballot: Ballot, ready: bool) -> bool:
        agreed = vote(ballot, ready)
        if ballot is late:
            raise KeyboardInterrupt
        return agreed

    with monkeypatch.context() as patch:
        patch.setattr(Ballot, "_vote", interrupted)
        answers: list[Any] = ranks.call("drop_vertices", ids=LONE)
    assert [type(answer) for answer in answers] == [dict] * (size - 1) + [KeyboardInterrupt]
    assert [servant.state.in_doubt for servant in ranks.servants] == [False] * (size - 1) + [True]

    # It learns of the commit.
    ranks.call("resolve", changes=max(servant.state.changes for servant in ranks.servants))
    assert ranks.shards[-1].maintained["a"].result is None
    ranks.reconnect()
    assert read(ranks, name) == ("recomputed", [0, 0, 0, 3, 3, 3])
    ranks.update(EdgeBatch([2], [3]), 2)
    assert len(read(ranks, name)[1]) == 6
