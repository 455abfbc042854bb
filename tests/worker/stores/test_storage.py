"""The openings of a store, one after another."""

from __future__ import annotations

import threading

import pytest
from changed_ranks import CONTENT, Changed, assert_same
from patience import patience
from plain_graph import fresh_rng
from stores import end, opened, raised, store_of

from mgraph.errors import StoreError
from mgraph.worker.stores.storage import Storage


def test_a_rank_that_begins_late_does_not_write_into_the_log_of_a_later_opening(tmp_path, monkeypatch):
    # Rank 1 stops before it locks its files, and rank 0's process ends. Another graph opens the store meanwhile.
    graph, later = (Changed((0, 13, 40), fresh_rng(), {"weighted": True}) for _ in range(2))
    first, done, real = dict[int, Storage](), threading.Event(), Storage._lock

    def lock(storage: Storage) -> None:
        late = first.setdefault(storage.rank, storage) is storage
        if late and storage.rank == 0:
            assert done.wait(patience(9))
        elif late:
            for held in graph.ranks.servants[0].storage._locks:
                held.close()
            end(later.ranks)
            later.ranks = opened(tmp_path, 2)
            for what in CONTENT:
                raised(later.change(what))
            end(later.ranks)
            done.set()
        real(storage)

    monkeypatch.setattr(Storage, "_lock", lock)
    with pytest.raises(StoreError, match="was opened again as term 2, while term 1 began here"):
        store_of(graph.ranks, tmp_path)
    end(graph.ranks)
    again = opened(tmp_path, 2)
    assert_same(again, later.model, later.epoch)
    end(again)
