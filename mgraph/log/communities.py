"""Names of communities in a store: a file in each snapshot, and one that is written when the graph is closed.

A file begins with the XXH3 of the rest, which is packed by `mgraph.plain`: the store's id, the term, the epoch, the
number of vertices, and the values of `mgraph.worker.results.remembered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgraph.errors import StoreError
from mgraph.log.files import failed
from mgraph.log.records import checksum
from mgraph.log.store import Store
from mgraph.plain import NotPlain, pack, unpack

__all__ = ["FILE", "read_communities", "write_communities"]

FILE = "communities.bin"
SUM = 8  #: bytes of the checksum


def write_communities(store: Store, name: str, of: str, content: Mapping[str, Any]) -> None:
    """Write a file, durably and in a single step; `of` is the id of the store."""
    data = pack({"id": of, **content})
    try:
        store.files.replace(store.at(name), checksum(data).to_bytes(SUM, "little") + data)
    except OSError as error:
        raise failed(error, store.at(name), "the names of communities cannot be written:") from error


def read_communities(store: Store, name: str, of: str) -> dict[str, Any]:
    """Return the content of a file; `StoreError` if it is damaged or of another store."""
    path = store.at(name)
    try:
        data = store.files.read(path)
        if checksum(data[SUM:]) != int.from_bytes(data[:SUM], "little"):
            raise NotPlain("its checksum is another")
        content: dict[str, Any] = unpack(data[SUM:])
    except OSError as error:
        raise failed(error, path, "the names of communities cannot be read:") from error
    except NotPlain as error:
        problem = f"{path} is damaged: {error}; restore it from a backup, or open the store with repair=True, which"
        raise StoreError(f"{problem} names communities anew") from None
    if content["id"] != of:
        raise StoreError(f"{path} is of another store; restore it from a backup, or remove it")
    return content
