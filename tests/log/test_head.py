"""Heads of logs name what cannot be missing, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from crashing import CrashingFiles

from mgraph.errors import StoreError
from mgraph.log.head import HeadWriter
from mgraph.log.log import Log
from mgraph.log.manifest import Head
from mgraph.log.records import log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.store import Store


def begun(size: int) -> tuple[Store, list[Log], list[HeadWriter]]:
    store = Store("/data/store", CrashingFiles())
    store.make_folder()
    name = store.create({"n_vertices": 10})["id"]
    term = store.begin_term(None, size, "always")
    logs, heads = [], []
    for rank in range(size):
        log = Log(Segments(store.files, store.log_folder(1, rank), log_id(name, 1, rank)), "always", 0)
        logs.append(log)
        heads.append(HeadWriter(store, Head(name, term, rank, 0, 0), log))
    return store, logs, heads


def keep(log: Log, epoch: int) -> None:
    log.begin("batch", {"src": np.array([epoch], np.uint32), "dst": np.array([0], np.uint32)}, epoch)
    log.ready()
    log.keep()


def test_a_head_is_written_again_where_something_is_new(monkeypatch):
    store, (log,), (head,) = begun(1)
    written, write = [], store.write_head

    def note(head: Head, durable: bool) -> None:
        written.append((head.epoch, durable))
        write(head, durable)

    monkeypatch.setattr(store, "write_head", note)
    for epoch in (1, 2):
        keep(log, epoch)
        head.write()
        head.write()
    log.close()
    assert [head.epoch for head in store.heads()] == [1]  # the last one that every rank is known to have
    assert written == [(0, True), (1, False)]


def test_an_epoch_that_a_head_names_is_in_the_logs():
    store, logs, heads = begun(2)
    for log, head in zip(logs, heads, strict=True):
        keep(log, 1)
        log.close()
        head.close()
    assert scan_store(store).epoch == 1
    store.write_head(replace(store.heads()[0], epoch=2))
    with pytest.raises(StoreError, match="epoch 2 was synced and is not there"):
        scan_store(store)


def test_a_store_is_opened_where_a_rank_in_doubt_refused_what_another_has_made():
    """A rank makes a change and is cut off; the client tells the other, which is in doubt, to discard it."""
    store, logs, heads = begun(2)
    for epoch in (1, 2):
        for rank, log in enumerate(logs):
            log.begin("batch", {"src": np.array([epoch], np.uint32), "dst": np.array([rank], np.uint32)}, epoch)
            log.ready()
        logs[1].keep()
        logs[0].keep() if epoch == 1 else logs[0].refuse()
    for log, head in zip(logs, heads, strict=True):
        log.close()
        head.close()
    assert [head.epoch for head in store.heads()] == [0, 1]
    stored = scan_store(store)
    assert (stored.epoch, stored.notes) == (1, [])


def test_the_log_is_named_that_lacks_the_second_attempt_at_an_epoch():
    store, logs, heads = begun(2)
    for log, head in zip(logs, heads, strict=True):
        keep(log, 1)
        log.begin("batch", {"src": np.array([2], np.uint32), "dst": np.array([0], np.uint32)}, 2)
        log.ready()
        log.refuse()
        head.write()
        keep(log, 2)
        log.close()
    store.write_head(replace(store.heads()[0], epoch=2))
    for rank in (0, 1):
        path = f"{store.log_folder(1, rank)}/{0:016x}.log"
        last = [entry for entry in store.scan(1, rank, 0, False).entries if entry.kind == "batch"][-1]
        data, store.files.now[path].data = store.files.now[path].data, store.files.now[path].data[: last.at]
        with pytest.raises(StoreError, match=f"rank-000{rank}.*: epoch 2 was synced and is not there"):
            scan_store(store)
        store.files.now[path].data = data
    assert scan_store(store).epoch == 2
