"""Transfer of bytes that a single rank can read and others need, by the graph's own exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgraph.device import Device
from mgraph.worker.shard.shard import Shard

__all__ = ["Piece", "transfer"]


class Piece(NamedTuple):
    """Bytes that a rank can read.

    Parameters
    ----------
    holder : int
        That rank.
    nbytes : int
    what : object
        For the holder, what they are.
    """

    holder: int
    nbytes: int
    what: Any


def transfer(shard: Shard, wanted: Sequence[Sequence[Piece]], load: Callable[[Any], np.ndarray]) -> list[np.ndarray]:
    """Return the pieces ``wanted[rank]`` of this rank, each uint8[nbytes], in their order.

    All ranks call it together: an alltoallv, if any piece is wanted.

    Parameters
    ----------
    wanted : sequence of sequence of Piece
        For each rank; the same on every rank.
    load : callable
        ``load(what)`` reads a piece that this rank holds: uint8[nbytes].
    """
    if not any(wanted):
        return []
    device, rank = shard.device, shard.rank
    parts = []
    for pieces in wanted:
        mine = [load(piece.what) for piece in pieces if piece.holder == rank]
        parts.append(device.asarray(np.concatenate([np.empty(0, np.uint8), *mine])))
    with shard.waiting():
        got = [Device.to_host(part) for part in shard.exchange.alltoallv(parts)]
    places, received = [0] * shard.size, []
    for holder, nbytes, _ in wanted[rank]:
        received.append(got[holder][places[holder] : places[holder] + nbytes])
        places[holder] += nbytes
    return received
