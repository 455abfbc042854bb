"""Names of communities of a stored graph: which of the saved ones it has, and their way to all ranks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from mgraph.errors import StoreError
from mgraph.log.communities import FILE, read_communities
from mgraph.log.manifest import StoredGraph
from mgraph.plain import pack, unpack
from mgraph.worker.results.remembered import restored
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.all_or_none import all_or_none
from mgraph.worker.stores.storage import Storage
from mgraph.worker.stores.transfer import Piece, transfer

__all__ = ["restore_communities"]

logger = logging.getLogger(__name__)

Value = dict[str, Any]


def restore_communities(shard: Shard, storage: Storage, stored: StoredGraph, repair: bool, writes: bool) -> int:
    """Have the shard remember the newest names that belong to the stored graph.

    Those of a close, or of its snapshot. All ranks call it together.

    Returns
    -------
    int
        The number of the stored changes that the names know.
    """
    # Read what this rank sees, and tell all ranks of each: term, closed, the place among the changes, the first name
    # that no other result has used, and the bytes of the results, 0 for none.
    with all_or_none(shard):
        contents = _seen(shard, storage, stored, repair)
    packed = [pack(content["results"]) if content["results"] else b"" for content in contents]
    own = np.full((2 * shard.size, 5), -1, np.int64)
    for at, (content, data) in enumerate(zip(contents, packed, strict=True)):
        place = stored.place_of(content["epoch"], content["n_vertices"])
        place = -1 if place is None else place
        own[2 * shard.rank + at] = content["term"], content["closed"], place, content["first"], len(data)
    rows: list[list[int]] = shard.exchange.allreduce(own.reshape(-1), "max").reshape(own.shape).tolist()

    # Take the newest that the graph has come through.
    usable = [number for number, row in enumerate(rows) if row[2] >= 0]
    if not usable:
        shard.remembered = restored({}, 0, stored.term if writes else 0, whole=stored.term == 0)
        return 0
    chosen = max(usable, key=lambda number: rows[number][:3])
    term, closed, known, first, nbytes = rows[chosen]
    results: Value = {}
    if nbytes:
        piece = Piece(chosen // 2, nbytes, chosen % 2)
        (sent,) = transfer(shard, [[piece]] * shard.size, lambda at: np.frombuffer(packed[at], np.uint8))
        results = unpack(sent.tobytes())
    shard.remembered = restored(results, first, stored.term if writes else 0, bool(closed) and term == stored.term)
    return known


def _seen(shard: Shard, storage: Storage, stored: StoredGraph, repair: bool) -> list[Value]:
    """Read the communities that this rank finds: those saved at a close, else those of the snapshot.

    A repair leaves out damaged ones.
    """
    store, of, snapshot = storage.store, stored.about["id"], stored.snapshot or {"term": 0}
    files = [(store, FILE)] if storage.sees_communities and store.has(FILE) else []
    about, contents = snapshot.get("communities"), list[Value]()
    if about is not None and about.get("holder", 0) == shard.rank:
        files.append((store.archive, about["name"]))
    for place, name in files:
        if any(
            c["term"] >= snapshot["term"] and stored.place_of(c["epoch"], c["n_vertices"]) is not None for c in contents
        ):
            break
        try:
            contents.append(read_communities(place, name, of))
        except StoreError as error:
            if not repair:
                raise
            logger.warning("%s: communities are named anew: %s", shard, error)
    return contents
