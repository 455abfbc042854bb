"""What was logged makes the same graph again: on other ranks, in another structure, in another order, at any epoch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from changed_ranks import CONTENT, KINDS, MOVES, STARTS, Changed, N, assert_same
from graph_model import GraphModel, random_batch
from plain_graph import cuts, fresh_rng
from ranks import Ranks
from stores import end, opened, raised, store_of, written

from mgraph.batch import EdgeBatch
from mgraph.errors import Aborted, CapacityError, InvalidOption, StoreError
from mgraph.log.recovery_scan import scan_store
from mgraph.log.store import Store
from mgraph.structures import names
from mgraph.worker.commit.change import BatchChange
from mgraph.worker.stores import restore as restoring


def changed(path: Any, starts: Any, rng: np.random.Generator, kind: dict[str, Any], sync: str = "always") -> Changed:
    graph = Changed(starts, rng, kind)
    store_of(graph.ranks, path, sync)
    return graph


def carry_on(graph: Changed, ranks: Ranks) -> None:
    """From now on the graph is this one."""
    graph.ranks = ranks


@pytest.mark.parametrize("starts", STARTS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_opened_again_and_again_on_other_ranks(tmp_path, starts, kind):
    rng = fresh_rng()
    graph = changed(tmp_path, starts, rng, kind, rng.choice(["always", "background"]))
    for _ in range(2):
        for what in rng.permutation([*CONTENT, *CONTENT, *MOVES]).tolist():
            raised(graph.change(what))
        end(graph.ranks)
        structure, n = rng.choice(names()), graph.model.n_vertices
        order = rng.permutation(n).astype(np.uint32) if rng.random() < 0.5 else None
        ranges = cuts(rng, n, int(rng.integers(1, 5))).starts
        ranks = opened(
            tmp_path, starts=ranges, structure=structure, order=order, sync=rng.choice(["always", "background"])
        )
        assert_same(ranks, graph.model, graph.epoch)
        carry_on(graph, ranks)
    end(graph.ranks)


def test_opened_at_every_epoch_and_read_only(tmp_path):
    rng = fresh_rng()
    graph = changed(tmp_path, (0, 13, N), rng, {"weighted": True})
    models = [copy.deepcopy(graph.model)]
    for what in rng.permutation([*CONTENT] * 3).tolist():
        raised(graph.change(what))
        models.append(copy.deepcopy(graph.model))
    for epoch in range(graph.epoch + 1):  # beside the graph that goes on
        ranks = opened(tmp_path, 3, epoch=epoch)
        assert_same(ranks, models[epoch], epoch)
        with pytest.raises(InvalidOption, match=f"as of epoch {epoch} and is read-only"):
            raised(ranks.update(EdgeBatch([0], [1]), epoch + 1))
        end(ranks)
    with pytest.raises(InvalidOption, match=f"epochs up to {graph.epoch}, and {graph.epoch + 1} was asked for"):
        opened(tmp_path, epoch=graph.epoch + 1)
    raised(graph.change("batch"))
    end(graph.ranks)


@pytest.mark.parametrize("sync", ["always", "background"])
def test_what_is_refused_is_not_there_and_what_follows_it_is(tmp_path, sync, monkeypatch):
    rng = fresh_rng()
    graph = changed(tmp_path, (0, 13, 20, N), rng, {}, sync)
    prepare = BatchChange.prepare
    for _ in range(12):
        failing = set(np.flatnonzero(rng.random(3) < 0.3).tolist())

        def fails(change: BatchChange, failing: set[int] = failing) -> None:
            prepare(change)
            if change.shard.rank in failing:
                raise CapacityError("no room")

        monkeypatch.setattr(BatchChange, "prepare", fails)
        answers = graph.change(rng.choice(["batch", "part", "delete_vertices"]))
        monkeypatch.undo()
        assert any(isinstance(answer, CapacityError) for answer in answers) == bool(failing)
        if failing:
            assert all(isinstance(answer, CapacityError | Aborted) for answer in answers)
            graph.ranks.reconnect()
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)


def test_one_rank_goes_on_without_a_new_exchange_after_a_refusal(tmp_path, monkeypatch):
    graph = changed(tmp_path, (0, N), fresh_rng(), {})
    raised(graph.change("batch"))
    prepare = BatchChange.prepare
    for _ in range(3):
        monkeypatch.setattr(BatchChange, "prepare", lambda change: (_ for _ in ()).throw(CapacityError("no room")))
        with pytest.raises(CapacityError):
            raised(graph.change("batch"))
    monkeypatch.setattr(BatchChange, "prepare", prepare)
    raised(graph.change("batch"))
    end(graph.ranks)
    ranks = opened(tmp_path)
    assert_same(ranks, graph.model, 2)
    end(ranks)


def test_a_rank_in_doubt_logs_the_refusal_once_it_learns_the_outcome(tmp_path, monkeypatch):
    from mgraph.worker.commit.ballot import Ballot

    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {})
    raised(graph.change("batch"))
    for made in (1, 2):  # refused, then made
        given = graph.draw("batch")
        vote = Ballot._vote
        monkeypatch.setattr(Ballot, "_vote", lambda ballot, ready: (_ for _ in ()).throw(Aborted("released")))
        graph.change("batch", given)
        monkeypatch.setattr(Ballot, "_vote", vote)
        graph.ranks.reconnect()
        raised(graph.ranks.call("resolve", changes=made))
        if made == 2:
            graph.follow("batch", *given)
    raised(graph.change("batch"))
    end(graph.ranks)
    ranks = opened(tmp_path, 3)
    assert_same(ranks, graph.model, 3)
    end(ranks)


def test_large_records_are_cut_and_small_ones_joined(tmp_path, monkeypatch):
    rng = fresh_rng()
    graph = changed(tmp_path, (0, 13, N), rng, {"weighted": True})
    for _ in range(4):
        batch = random_batch(rng, N, int(rng.choice([3, 500])), True)
        raised(graph.change("batch", (batch,)))
    end(graph.ranks)
    for chunk in (1, 64):
        monkeypatch.setattr(restoring, "CHUNK", chunk)
        ranks = opened(tmp_path, 3)
        assert_same(ranks, graph.model, graph.epoch)
        end(ranks)


def test_empty_stores(tmp_path):
    ranks = Ranks((0, 0, 0))
    store_of(ranks, tmp_path / "none")
    end(ranks)
    ranks = opened(tmp_path / "none", 3)
    assert [shard.n_vertices for shard in ranks.shards] == [0, 0, 0]
    raised(ranks.call("add_vertices", n_vertices=4, epoch=1))
    raised(ranks.update(EdgeBatch([], []), 2))
    raised(ranks.update(EdgeBatch([3, 3], [3, 0]), 3))
    end(ranks)
    ranks = opened(tmp_path / "none", 2)
    assert_same(ranks, GraphModel(4, edges={(3, 3): 1.0, (3, 0): 1.0}), 3)
    end(ranks)


def test_a_store_that_is_there_or_in_use_or_missing(tmp_path, monkeypatch):
    ranks = Ranks((0, 5, 10))
    store_of(ranks, tmp_path / "a")
    end(ranks)
    other = Ranks((0, 10))
    with pytest.raises(InvalidOption, match=r"holds a store: open it with DynamicGraph\.open\('.*/a'\), on"):
        store_of(other, tmp_path / "a")
    end(other)
    ranks, second = opened(tmp_path / "a", 2), Ranks((0, 10))
    monkeypatch.setattr(Store.lock, "__defaults__", ("lock", "", 0.2))
    with pytest.raises(StoreError, match=r"is in use by process \d+ on .*: close that graph first"):
        raised(second.call("claim", path=str(tmp_path / "a")))
    end(second)
    end(ranks)
    with pytest.raises(StoreError, match="holds no store that this process can see"):
        scan_store(Store(str(tmp_path / "b")))


def test_ranks_of_a_graph_that_lost_rank_0_keep_the_store(tmp_path):
    """A rank that lives on could still write a refusal: nobody opens the store meanwhile."""
    ranks = Ranks((0, 5, 10))
    store_of(ranks, tmp_path)
    ranks.servants[0].close()
    store = Store(str(tmp_path))
    store.lock(seconds=0.2).close()
    with pytest.raises(StoreError, match="in use") as refused:
        store.lock("rank-0001.lock", seconds=0.2)
    assert refused.value.reason == "in use"
    ranks.servants[1].close()
    store.check_ranks()


def test_all_ranks_hear_of_a_log_that_cannot_be_begun(tmp_path):
    ranks = Ranks((0, 5, 10))
    (tmp_path / "rank-0001.lock").mkdir()
    with pytest.raises(StoreError, match=r"cannot be locked: .*/rank-0001\.lock: Is a directory"):
        store_of(ranks, tmp_path)
    end(ranks)


@pytest.mark.parametrize("snapshots", [False, True])
def test_places_in_sources_are_those_of_the_batches_that_are_there(tmp_path, snapshots, monkeypatch):
    rng = fresh_rng()
    ranks = Ranks((0, 13, N))
    store_of(ranks, tmp_path, retain=1)
    model, epoch, places, prepare = GraphModel(N), 0, {}, BatchChange.prepare
    for turn in range(20):
        name, batch = str(rng.choice(["topic-1", "Stra\u00dfe", "x" * 300])), random_batch(rng, N, 9, False)
        place = (name, places.get(name, -1) + int(rng.integers(1, 1 << 40)))
        parts = [{c: getattr(batch[a:b], c) for c in ("src", "dst", "op")} for a, b in ((0, 4), (4, 9))]
        if refused := rng.random() < 0.3:
            monkeypatch.setattr(BatchChange, "prepare", lambda change: (_ for _ in ()).throw(CapacityError("no room")))
        answers = ranks.call("update", parts, epoch=epoch + 1, offset=place)
        monkeypatch.setattr(BatchChange, "prepare", prepare)
        if refused:
            assert any(isinstance(answer, CapacityError) for answer in answers)
            ranks.reconnect()
            continue
        raised(answers)
        model.update(batch)
        epoch, places[name] = epoch + 1, place[1]
        with pytest.raises(InvalidOption, match="which is in the graph up to"):
            raised(ranks.call("update", parts, epoch=epoch + 1, offset=place))
        ranks.reconnect()
        if snapshots and turn % 5 == 4:
            raised(ranks.call("snapshot"))
            written(ranks)
        if turn % 7 == 6:
            end(ranks)
            ranks = opened(tmp_path, 2, retain=1)
        assert ranks.call("store")[0]["offsets"] == places
    end(ranks)
    ranks = opened(tmp_path, 2)
    assert ranks.call("store")[0]["offsets"] == places
    assert_same(ranks, model, epoch)
    end(ranks)


def test_workers_that_do_not_see_the_same_folder_are_reported(tmp_path):
    ranks = Ranks((0, 5, 10))
    kind = {"structure": "csr", "directed": True, "weighted": False, "reverse": False, "n_vertices": 10}
    paths = [{"path": str(tmp_path / name)} for name in ("a", "b")]
    with pytest.raises(StoreError, match="b holds no store that this process can see; the workers of a graph share"):
        raised(ranks.call("create_store", paths, kind=kind, sync="always", lag_bytes=1 << 20, lag_seconds=1.0))
    end(ranks)
