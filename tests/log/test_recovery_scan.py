"""A damaged refusal brings no change back."""

from __future__ import annotations

import numpy as np
import pytest
from crashing import CrashingFiles

from mgraph.errors import StoreError
from mgraph.log.head import HeadWriter
from mgraph.log.log import Log
from mgraph.log.manifest import Head
from mgraph.log.records import log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.scan import scan
from mgraph.log.segments import Segments
from mgraph.log.store import Store

REFUSED = [(2,), (2, 3), (3,)]  #: epochs that are refused, once


def logged(refused: tuple[int, ...], upto: int, heads: bool = False) -> tuple[Store, str, int]:
    """Return a store of one rank, the folder of its log, and the log's number. `refused` are refused at first.

    With `heads`, the head tells at the end which epoch is durable.
    """
    store = Store("/data/store", CrashingFiles())
    store.make_folder()
    name = store.create({"n_vertices": 10})["id"]
    number, folder = log_id(name, 1, 0), store.log_folder(1, 0)
    term = store.begin_term(None, 1, "always")
    log = Log(Segments(store.files, folder, number), "always", 0)
    head = HeadWriter(store, Head(name, term, 0, 0, 0), log)
    head.write()
    columns = {"src": np.array([1], np.uint32), "dst": np.array([0], np.uint32)}
    for epoch in range(1, upto + 1):
        if epoch == refused[0]:  # those that are decided together
            log.begin("batch", columns, epoch, more=[columns] * (len(refused) - 1))
            log.ready()
            log.refuse()
        if epoch < upto or epoch not in refused:
            log.begin("batch", columns, epoch)
            log.ready()
            log.keep()
    if heads:
        head.write()
    log.close()
    return store, folder, number


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("upto", [3, 4])
@pytest.mark.parametrize("heads", [False, True])
def test_a_refusal_that_is_damaged(refused, upto, heads):
    """A head that has the epoch speaks of its second attempt."""
    store, folder, number = logged(refused, upto, heads)
    entries = scan(store.files, folder, number).entries
    assert sum(entry.kind == "refused" for entry in entries) == len(refused)
    whole, before = scan_store(store).epoch, refused[0] - 1
    for entry in entries:
        if entry.kind != "refused":
            continue
        for bit in range(0, 8 * 88, 7):
            data = store.files.now[entry.path].data
            data[entry.at + bit // 8] ^= 1 << bit % 8
            with pytest.raises(StoreError, match=f"{entry.path}, offset {entry.at}: .* whole up to epoch {before};"):
                scan_store(store)
            assert scan_store(store, repair=True).epoch == before
            data[entry.at + bit // 8] ^= 1 << bit % 8
    assert scan_store(store).epoch == whole


def test_a_change_that_is_damaged_takes_none_before_it_along():
    store, folder, number = logged((2,), 4)
    kept = [entry for entry in scan(store.files, folder, number).entries if entry.kind != "refused"]
    for entry in [entry for entry in kept if entry.attempt or entry.epoch != 2]:  # but the refused one
        for bit in range(0, 8 * (entry.end - entry.place), 7):
            data = store.files.now[entry.path].data
            data[entry.at + bit // 8] ^= 1 << bit % 8
            assert scan_store(store, repair=True).epoch == entry.epoch - 1
            data[entry.at + bit // 8] ^= 1 << bit % 8
