"""The runs that ranks commit: of shares that they exchange, and of a whole batch of which each takes its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_model import random_batch
from ranks import Ranks

from mgraph.batch import EdgeBatch
from mgraph.client.batches.split import WHOLE, deal
from mgraph.structures import Run
from mgraph.worker.calls import changes
from mgraph.worker.commit import route as route_module

N = 40
COLUMNS = ("keys", "op", "weight", "time", "place")


@pytest.fixture
def runs(monkeypatch) -> list[tuple[int, list[Any]]]:
    """The ranks' runs, as (rank, run of each structure), of the batches so far."""
    committed: list[tuple[int, list[Any]]] = []

    class Noted(changes.BatchChange):
        def __init__(self, shard: Any, runs: Any, *rest: Any) -> None:
            committed.append((shard.rank, [*runs]))
            super().__init__(shard, runs, *rest)

    monkeypatch.setattr(changes, "BatchChange", Noted)
    return committed


def columns(batch: EdgeBatch) -> dict[str, Any]:
    """Return a batch's columns by name."""
    return {name: getattr(batch, name) for name in ("src", "dst", "weight", "op", "time")}


def columns_of(runs: list[tuple[int, list[Any]]]) -> list[Any]:
    """Return the columns of each rank's runs, in rank order, and forget the runs."""
    columns = [
        [None if (array := getattr(run, name)) is None else array.tolist() for name in COLUMNS]
        for _, rank_runs in sorted(runs, key=lambda item: item[0])
        for run in rank_runs
    ]
    runs.clear()
    return columns


@pytest.fixture(params=["few", "many", "counted"])
def way(request, monkeypatch) -> str:
    """How runs are made: of few edges on the host; of many; of many, and the host counts where they are cut."""
    if request.param != "few":
        monkeypatch.setattr(route_module, "FEW", -1)
    if request.param == "counted":
        monkeypatch.setitem(route_module.COUNTED, "cpu", 1 << 10)
    return request.param


@pytest.fixture
def counted(monkeypatch) -> list[bool]:
    """For each run with edges that was cut, if the host had counted where."""
    notes, cuts = list[bool](), Run.cuts

    def noted(run: Run, rows: Any) -> list[int]:
        if len(run):
            notes.append(run.counted is not None)
        indices = cuts(run, rows)
        assert indices == cuts(Run(run.keys), rows)
        return indices

    monkeypatch.setattr(Run, "cuts", noted)
    return notes


@pytest.mark.parametrize("starts", [(0, 13, N), (0, 0, 25, N), (0, 20, 20, N)])
@pytest.mark.parametrize(
    "kind",
    [{}, {"directed": False}, {"reverse": True, "weighted": True}, {"weighted": True, "directed": False}],
    ids=str,
)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_whole_batch_gives_every_rank_the_run_that_routing_gives(runs, starts, kind, ordered, way, counted):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(N).astype(np.uint32) if ordered else None
    routed, whole = (Ranks(starts, order=order, **kind) for _ in range(2))
    for epoch in range(1, 6):
        batch = random_batch(rng, N, int(rng.integers(0, 90)), kind.get("weighted", False), float(rng.choice([0, 0.5])))
        size = len(starts) - 1
        told = [{k: v for k, v in a.items() if k in ("inserted", "updated", "deleted", "missing")}
                for a in routed.call("update", deal(columns(batch), size), epoch=epoch)]  # fmt: skip
        expected = columns_of(runs)
        shares = deal(columns(batch), size, whole=WHOLE)
        assert all("whole" in share for share in shares)
        answers = whole.call("update", shares, epoch=epoch)
        assert columns_of(runs) == expected
        assert [{name: answer[name] for name in counts} for answer, counts in zip(answers, told, strict=True)] == told
    assert set(counted) == {way == "counted" and not ordered}


def test_a_whole_batch_is_not_routed(monkeypatch):
    ranks, batch = Ranks((0, 13, N)), EdgeBatch([1, 20], [30, 2])

    def refuse(shard: Any, run: Any) -> None:
        raise AssertionError("a whole batch needs no exchange")

    monkeypatch.setattr(changes, "route", refuse)
    answers = ranks.call("update", deal(columns(batch), 2, whole=WHOLE), epoch=1)
    assert [answer["inserted"] for answer in answers] == [1, 1]


def test_copies_of_a_whole_batch_are_small_together():
    ids = np.zeros(WHOLE // 16, np.uint32)  # 8 bytes an edge, for 2 ranks
    assert all("whole" in share for share in deal(columns(EdgeBatch(ids, ids)), 2, whole=WHOLE))
    for size, edges in (2, len(ids) + 1), (3, len(ids)):
        more = np.zeros(edges, np.uint32)
        shares = deal(columns(EdgeBatch(more, more)), size, whole=WHOLE)
        assert sum(len(share["src"]) for share in shares) == edges
        assert not any("whole" in share for share in shares)
