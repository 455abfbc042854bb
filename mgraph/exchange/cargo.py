"""Cargo of a meeting: messages and shared values for ranks that do not map each other's memory.

Ranks that map each other's memory are a group. A gateway reads its group's cargo from the mates' regions, and writes
the cargo of other groups into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import ExchangeError
from mgraph.exchange.regions import Layout, OwnRegion
from mgraph.kernels import Library, constants, load

__all__ = ["Cargo", "Swap", "swap_cargo"]

WORDS = constants("kernels/world_common.cuh")
NUMBERS, SHARES = WORDS["number_count"], WORDS["share_words"]
SHARED = ("bits", "vertices", "count", "wide", "narrow", "array", "width")  #: the fields of `Shared`
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
    messages from each of its ranks to each of the others. Whatever another group sends, only arrays that the own
    program shares in the same phase are written, and only at the sender's vertices (in a bitmap at whole words).
    """

    def __init__(self, device: Device, region: OwnRegion, layout: Layout, mates: Sequence[int], meetings: int) -> None:
        self.device, self._region, self._layout, self._mates = device, region, layout, mates
        self._inboxes = layout.inboxes + (meetings & 1) * len(region.addresses) * layout.box
        self._refused: Array | None = None  # per rank: 1 + a listed vertex that the rank does not own

    def check(self, rank: int, words: np.ndarray, own: np.ndarray) -> None:
        """Raise `ExchangeError` unless the words of another group's rank fit the `own` words of this rank.

        All ranks share the same arrays in a phase.
        """
        if (least := int(words[: -NUMBERS - SHARES].min())) < 0:
            raise ExchangeError(f"rank {rank} says that it sends {least} messages; the least number is 0")
        theirs, ours = (dict(zip(SHARED, w[-SHARES:].tolist(), strict=True)) for w in (words, own))
        first, end = self._layout.starts[rank : rank + 2]
        if not 0 <= theirs["count"] <= end - first:
            raise ExchangeError(f"rank {rank} says that it lists {theirs['count']} vertices; it has {end - first}")
        for shared in (theirs, ours):
            shared |= {"vertices": shared["vertices"] >= 0, "count": 0}
        if theirs != ours:
            raise ExchangeError(f"rank {rank} says that it shares {theirs}, and this rank shares {ours}")

    def check_lists(self) -> None:
        """Raise `ExchangeError` if another group's rank has listed a vertex that is not its own."""
        refused = [] if self._refused is None else Device.to_host(self._refused).tolist()
        for rank, vertex in enumerate(refused):
            if vertex:
                first, end = self._layout.starts[rank : rank + 2]
                raise ExchangeError(f"rank {rank} lists vertex {vertex - 1}; its vertices are {first} to {end - 1}")

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
            if self._refused is None:
                self._refused = self.device.zeros(len(self._layout.starts) - 1, np.int64)
            self._library().TakeValues(
                count, records=records, n=count, first=first, end=self._layout.starts[sender + 1], bits=bitmap,
                **self._elements(wide, narrow, rank), refused=self._refused[sender:],
            )  # fmt: skip
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

    Raises
    ------
    ExchangeError
        What another group has sent does not fit.
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

    # Split the messages into words and cargo, whose sizes all ranks compute from the words.
    own = words[groups[place][0]]
    every, n, data = dict(words), len(own), dict[int, Array]()
    for k in others:
        end = 8 * n * len(groups[k])
        if len(received[k]) < end:
            raise ExchangeError(f"rank {groups[k][0]} sends {len(received[k])} bytes of words instead of {end}")
        every.update(zip(groups[k], received[k][:end].view(np.int64).reshape(-1, n), strict=True))
        data[k] = device.asarray(received[k][end:])
        for r in groups[k]:
            cargo.check(r, every[r], own)
    sizes = np.array([[cargo.nbytes(every, of, to) * (of is not to) for to in groups] for of in groups])

    # Send large cargo.
    if most is not None:
        large = np.where(sizes > most, sizes, 0)
        if large.any():
            nothing = device.zeros(0, np.uint8)
            parts = [loads[k] if large[place, k] else nothing for k in range(len(groups))]
            later = exchange.alltoallv(parts, large)
            data.update({k: later[k] for k in others if large[k, place]})
    for k in others:
        if len(data[k]) != (due := sizes[k, place]):
            raise ExchangeError(f"rank {groups[k][0]} sends {len(data[k])} bytes of cargo instead of {due}")
        cargo.unload(every, groups[k], data[k])
    device.synchronize()
    cargo.check_lists()
    return every
