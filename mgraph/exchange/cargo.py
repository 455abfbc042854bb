"""Cargo of a meeting: messages and shared values for ranks that do not map each other's memory.

Ranks that map each other's memory are a group. A gateway reads its group's cargo from the mates' regions, and writes
the cargo of other groups into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from mgraph.device import Array, Device
from mgraph.exchange.regions import Layout, OwnRegion
from mgraph.kernels import Library, constants, load

__all__ = ["Cargo", "Swap", "swap_cargo"]

WORDS = constants("kernels/world_common.cuh")
NUMBERS, SHARES = WORDS["number_count"], WORDS["share_words"]
INLINE = 64 << 10  #: largest cargo of a GPU, in bytes, that goes through host memory, in one message with the words

Words = Mapping[int, np.ndarray]  #: by rank: its messages to each rank, its numbers, and its fields of `Shared`


class Cargo:
    """Messages and shares (values for all ranks) of one meeting.

    Parameters
    ----------
    device : Device
    region : OwnRegion
        The own region, with those of `mates` mapped.
    layout : Layout
    mates : sequence of int
    meetings : int
        The meetings of all ranks before this one.

    Notes
    -----
    The cargo from a group to another has the shares of its ranks, each padded to a multiple of 8 bytes, then the
    messages from each of its ranks to each of the others.
    """

    def __init__(self, device: Device, region: OwnRegion, layout: Layout, mates: Sequence[int], meetings: int) -> None:
        self.device, self._region, self._layout, self._mates = device, region, layout, mates
        self._inboxes = layout.inboxes + (meetings & 1) * len(region.addresses) * layout.box

    def nbytes(self, words: Words, of: Sequence[int], to: Sequence[int]) -> int:
        """Return the size of the cargo from the ranks `of` to the ranks `to`."""
        shares = sum(_padded(self._share_nbytes(r, words[r])) for r in of)
        return shares + sum(self._sent(words[r], t) for r in of for t in to)

    def load(self, words: Words, to: Sequence[int], *head: Array) -> Array:
        """Return the cargo from the mates to the ranks `to`, behind `head`, uint8."""
        layout, pieces = self._layout, list(head) or [self.device.empty(0, np.uint8)]
        for r in self._mates:
            if nbytes := self._share_nbytes(r, words[r]):
                pieces += [self._share(r, words[r]), self.device.zeros(_padded(nbytes) - nbytes, np.uint8)]
        for r in self._mates:
            for t in to:
                if sent := self._sent(words[r], t):
                    pieces.append(self._region.array(layout.outboxes + t * layout.box, sent, np.uint8, r))
        return self.device.concatenate(pieces)

    def unload(self, words: Words, of: Sequence[int], data: Array) -> None:
        """Write the cargo from the ranks `of`, uint8[nbytes], to the regions of the mates."""
        # Shares go to all mates.
        at = 0
        for sender in of:
            if nbytes := self._share_nbytes(sender, words[sender]):
                for r in self._mates:
                    self._take_share(sender, words[sender], data[at : at + nbytes], r)
                at += _padded(nbytes)
        # Messages go to the inboxes of their receivers.
        for sender in of:
            for r in self._mates:
                if sent := self._sent(words[sender], r):
                    box = self._region.array(self._inboxes + sender * self._layout.box, sent, np.uint8, r)
                    box[:] = data[at : at + sent]
                    at += sent

    def _sent(self, words: np.ndarray, to: int) -> int:
        return min(int(words[to]), self._layout.room) * self._layout.message

    # ---- shares ------------------------------------------------------------------------------------------------------

    def _share_nbytes(self, rank: int, words: np.ndarray) -> int:
        bits, vertices, count, _, _, array, width = words[-SHARES:].tolist()
        if vertices >= 0:
            return 16 * count
        first, end = self._layout.starts[rank], self._layout.starts[rank + 1]
        if bits >= 0:
            return 4 * (-(-end // 32) - first // 32)
        return width * (end - first) if array >= 0 else 0

    def _share(self, rank: int, words: np.ndarray) -> Array:
        """Return the share of a mate. Mates write bitmaps and arrays to the own region, too, so they are read there."""
        bits, vertices, count, wide, narrow, array, width = words[-SHARES:].tolist()
        nbytes, first = self._share_nbytes(rank, words), self._layout.starts[rank]
        if vertices < 0:
            at = bits + 4 * (first // 32) if bits >= 0 else array + width * first
            return self._region.array(at, nbytes, np.uint8)
        # A list of vertices: a record of 16 bytes per vertex, with its elements.
        records = self.device.empty(2 * count, np.uint64)
        self._library().PackValues(
            count, vertices=self._region.array(vertices, count, np.uint32, rank), n=count, records=records,
            **self._elements(wide, narrow),
        )  # fmt: skip
        return records.view(np.uint8)

    def _take_share(self, sender: int, words: np.ndarray, data: Array, rank: int) -> None:
        """Write the share of `sender`, a rank of another group, to the region of a mate."""
        bits, vertices, _, wide, narrow, array, width = words[-SHARES:].tolist()
        first, n = self._layout.starts[sender], self._layout.starts[-1]
        if vertices >= 0:
            bitmap = None if bits < 0 else self._region.array(bits, -(-n // 32), np.uint32, rank)
            records, count = data.view(np.uint64), len(data) // 16
            arrays = self._elements(wide, narrow, rank)
            self._library().TakeValues(count, records=records, n=count, bits=bitmap, **arrays)
        elif bits >= 0:
            taken = data.view(np.uint32)
            to = self._region.array(bits + 4 * (first // 32), len(taken), np.uint32, rank)
            self._library().TakeBits(len(taken), taken=taken, n=len(taken), bits=to)
        else:
            self._region.array(array + width * first, len(data), np.uint8, rank)[:] = data

    def _elements(self, wide: int, narrow: int, rank: int | None = None) -> dict[str, Array]:
        n = self._layout.starts[-1]
        return {
            "wide": None if wide < 0 else self._region.array(wide, n, np.uint64, rank),
            "narrow": None if narrow < 0 else self._region.array(narrow, n, np.uint32, rank),
        }

    def _library(self) -> Library:
        return load(self.device, "kernels/shared_values.cuh")


def _padded(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


class Swap(Protocol):
    """The methods of an `Exchange` that `swap_cargo` needs. Each of its ranks stands for a group."""

    rank: int

    def swap_values(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send ``parts[k]`` to rank k, and return the parts for this rank."""

    def alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None = None) -> list[Array]:
        """Send ``parts[k]`` to rank k, from GPU to GPU where possible; `lengths` are those of all ranks' parts."""


def swap_cargo(exchange: Swap, groups: Sequence[Sequence[int]], words: Words, cargo: Cargo) -> dict[int, np.ndarray]:
    """Swap words and cargo with other groups; return the words of all their ranks.

    Each group sends one message to each other group. On a GPU, cargo of more than `INLINE` bytes is a second message,
    from GPU to GPU where the exchange can do that.

    Parameters
    ----------
    exchange : Exchange
    groups : sequence of sequences of int
        The ranks for which each rank of `exchange` stands.
    words : mapping
        The words of each rank of the own group.
    cargo : Cargo
    """
    # Send the words, and small cargo behind them.
    device, place = cargo.device, exchange.rank
    most = None if device.kind == "cpu" else INLINE
    head = np.concatenate([words[r] for r in groups[place]]).view(np.uint8)
    others = [k for k in range(len(groups)) if k != place]
    messages, loads = [head] * len(groups), dict[int, Array]()
    for k in others:
        if most is None:
            messages[k] = cargo.load(words, groups[k], head)
        else:
            loads[k] = cargo.load(words, groups[k])
            if 0 < len(loads[k]) <= most:
                messages[k] = np.concatenate([head, device.fetch(loads[k])])
    received = exchange.swap_values(messages)

    # Split the messages into words and cargo.
    every, n, data = dict(words), len(words[groups[place][0]]), dict[int, Array]()
    for k in others:
        end = 8 * n * len(groups[k])
        every.update(zip(groups[k], received[k][:end].view(np.int64).reshape(-1, n), strict=True))
        data[k] = device.asarray(received[k][end:])

    # Send large cargo. All ranks compute its sizes from the words.
    if most is not None:
        sizes = np.array([[cargo.nbytes(every, of, to) * (of is not to) for to in groups] for of in groups])
        sizes[sizes <= most] = 0
        if sizes.any():
            nothing = device.zeros(0, np.uint8)
            parts = [loads[k] if sizes[place, k] else nothing for k in range(len(groups))]
            later = exchange.alltoallv(parts, sizes)
            data.update({k: later[k] for k in others if sizes[k, place]})
    for k in others:
        cargo.unload(every, groups[k], data[k])
    device.synchronize()
    return every
