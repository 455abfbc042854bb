"""Heads of logs name what cannot be missing, and nothing else."""

from __future__ import annotations

import numpy as np
from crashing import CrashingFiles

from mgraph.log.head import HeadWriter
from mgraph.log.log import Log
from mgraph.log.manifest import Head
from mgraph.log.records import log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.store import Store


def test_a_store_is_opened_where_a_rank_in_doubt_refused_what_another_has_made():
    """A rank makes a change and is cut off; the client tells the other, which is in doubt, to discard it."""
    store = Store("/data/store", CrashingFiles())
    store.make_folder()
    name = store.create({"n_vertices": 10})["id"]
    term = store.begin_term(None, 2, "always")
    logs, heads = [], []
    for rank in range(2):
        log = Log(Segments(store.files, store.log_folder(1, rank), log_id(name, 1, rank)), "always", 0)
        logs.append(log)
        heads.append(HeadWriter(store, Head(name, term, rank, 0, 0), log))
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
