"""The runs that ranks commit: of shares that they exchange, and of a whole batch of which each takes its rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_model import random_batch
from ranks import FakeExchange, Ranks

from mgraph.batch import EdgeBatch
from mgraph.client.batches.split import WHOLE, deal
from mgraph.device import Device
from mgraph.structures import Run
from mgraph.structures.run import FEW
from mgraph.worker.calls import changes
from mgraph.worker.commit import ballot
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

    for module in (changes, ballot):
        monkeypatch.setattr(module, "BatchChange", Noted)
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
    ids = np.zeros(WHOLE // 16, np.uint32)  # 8 bytes per edge, for 2 ranks
    assert all("whole" in share for share in deal(columns(EdgeBatch(ids, ids)), 2, whole=WHOLE))
    for size, edges in (2, len(ids) + 1), (3, len(ids)):
        more = np.zeros(edges, np.uint32)
        shares = deal(columns(EdgeBatch(more, more)), size, whole=WHOLE)
        assert sum(len(share["src"]) for share in shares) == edges
        assert not any("whole" in share for share in shares)


def test_a_batch_that_is_written_once_goes_whole_up_to_a_size_of_its_own():
    ids = np.zeros(1000, np.uint32)
    for once, whole in (8000, True), (7999, False), (0, False):
        shares = deal(columns(EdgeBatch(ids, ids)), 8, whole=WHOLE // 8, once=once)
        assert ["whole" in share for share in shares] == [whole] * 8
        assert sum(len(share["src"]) for share in shares) == len(ids) * (8 if whole else 1)


# ---- waits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch) -> dict[str, list[str]]:
    """The waits of each rank's thread for a device, by the thread's name; as on GPUs, the host counts cuts."""
    noted: dict[str, list[str]] = {}

    def note(owner: type, name: str, waits: Callable[..., bool] = lambda *_: True) -> None:
        function = getattr(owner, name)

        def noting(*args: Any, **more: Any) -> Any:
            if waits(*args):
                noted.setdefault(threading.current_thread().name, []).append(name)
            return function(*args, **more)

        monkeypatch.setattr(owner, name, staticmethod(noting) if owner is Device and name == "to_host" else noting)

    for name in ("synchronize", "to_host", "total", "fetch"):
        note(Device, name)
    note(FakeExchange, "alltoallv", lambda exchange, parts, *_: parts[0].dtype != np.int64)  # those of votes
    note(Run, "cuts", lambda run, rows: run.counted is None and len(run) > FEW)
    monkeypatch.setitem(route_module.COUNTED, "cpu", route_module.COUNTED["cuda"])
    return noted


@pytest.mark.parametrize(("edges", "whole", "expected"), [
    (1, True, ["synchronize"] * 2),
    (FEW + 1, True, ["synchronize"] * 2),
    (100_000, True, ["synchronize"] * 2),
    (100_000, False, ["alltoallv", "synchronize", "synchronize"]),
])  # fmt: skip
def test_a_routed_insert_waits_for_the_device_at_its_counts_and_at_its_commit(waits, edges, whole, expected):
    """A further wait comes with an exchange: the sender's, before it tells the receiver that its rows are there."""
    n, size = 1 << 16, 2
    rng, ranks = np.random.default_rng(edges), Ranks((0, n // 2, n))
    first, batch = (EdgeBatch(*rng.integers(0, n, (2, m), np.uint32)) for m in (10_000, edges))
    ranks.update(first, 1)
    waits.clear()
    shares = deal(columns(batch), size, whole=WHOLE, once=8 * edges if whole else 0)
    if whole:
        assert all("whole" in share for share in shares)
    answers = ranks.call("update", shares, epoch=2)
    assert sum(answer["inserted"] + answer["updated"] for answer in answers) == len(np.unique(keys_of(batch)))
    # A rank without rows has nothing to count.
    assert sorted(waits.values(), key=len)[-1] == expected
    assert all(rank_waits in (expected, ["synchronize"]) for rank_waits in waits.values())
    assert len(waits) == size and (edges == 1 or list(waits.values()) == [expected] * size)


def keys_of(batch: EdgeBatch) -> np.ndarray:
    """Return each edge as one number."""
    return np.asarray(batch.src, np.uint64) << np.uint64(32) | np.asarray(batch.dst, np.uint64)
