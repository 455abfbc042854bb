"""Programs of all ranks of a graph, and the drivers of their phases.

A program is a kernel file with phases (see ``kernels/world_common.cuh``). If all ranks map each other's memory, one
launch on each runs all phases, and the ranks meet in memory after each. Between groups of such ranks, gateways on CPUs
send to each other at a meeting, by links. Elsewhere a launch ends at each meeting of all ranks, where the exchange
carries the ranks' words, and their cargo for ranks whose memory they do not map.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import Aborted, CapacityError
from mgraph.exchange.cargo import Cargo
from mgraph.exchange.gpu_tickets import Tickets, Watch
from mgraph.exchange.links import Links
from mgraph.exchange.regions import Collectives, Layout, gather_bytes, open_region
from mgraph.exchange.segment import Place, Segment
from mgraph.exchange.waiting import wait_until
from mgraph.forks import renew_in_children
from mgraph.kernels import Library, Struct, constants
from mgraph.kernels.host import simulates_lanes
from mgraph.partition import Partition

__all__ = ["World"]

LAYOUT = constants("kernels/world_common.cuh")
NUMBERS, SAID, SLOT = LAYOUT["number_count"], LAYOUT["said_words"], LAYOUT["slot_words"]
FLAG_BITS = LAYOUT["flag_bits"]
HEARD_AT, SHARES = LAYOUT["heard_at"], LAYOUT["share_words"]
REPORT_AT, MEETING_AT, REPORT_WORDS = LAYOUT["report_at"], LAYOUT["meeting_at"], LAYOUT["report_words"]
OVERFLOWED = LAYOUT["overflowed"]
ENDED, STAYED, AT_MEETING, BROKEN = (LAYOUT[name] for name in ("ended", "stayed", "at_meeting", "broken"))
BEGINS, ENTERS, GOES_ON, CARRIED = (LAYOUT[name] for name in ("begins", "enters", "goes_on", "carried"))
PATIENCE = {"cuda": 2_000_000, "cpu": 5_000_000}  #: nanoseconds that a launch waits for another rank
STAY = 1 << 60  #: nanoseconds after which a launch leaves a GPU, unless asked to leave earlier
STAY_IN_BACKGROUND = 2_000_000  #: the same for a copy, so that batches of its graph get through
STAY_OF_CPU = 10  #: the same on a CPU, as a multiple of its patience: its host checks for an abort
GRANT_BYTES = 4096  #: size of the segment that holds the word of rank 0


def _stay(device: Device) -> int:
    """Return the nanoseconds after which a launch leaves at a meeting."""
    if device.kind == "cpu":
        return STAY_OF_CPU * PATIENCE["cpu"]
    return STAY_IN_BACKGROUND if device.background else STAY


class World:
    """Regions of all ranks of an exchange, and the words with which their programs meet.

    Parameters
    ----------
    exchange : Exchange
        A connected exchange. It carries the regions' names, and words and cargo if `mapped` is False.
    device : Device

    Attributes
    ----------
    mates : tuple of int
        The ranks whose regions this rank maps, itself among them.
    mapped : bool
        True if `mates` are all ranks, which then meet in memory. Otherwise the exchange carries words and cargo.
    one_memory : bool
        True if several ranks on CPUs may work on one array, in the region of one of them, as if they were threads of
        one rank. False on GPUs, for which another GPU's memory is slow, and in tests that simulate GPUs.

    Notes
    -----
    All ranks make the same calls. A region is grown by all of them together and holds nothing between two programs.
    The last phases of a program need not end with a meeting of all ranks: another rank may still read its inboxes or
    arrays when this one begins the next program of the same call. Before its first such meeting that program may only
    write to what those phases do not read.
    """

    def __init__(self, exchange: Collectives, device: Device) -> None:
        self.exchange, self.device = exchange, device
        self.rank, self.size = exchange.rank, exchange.size
        self._closed = False
        self._lock = threading.RLock()  # held by a launch, and while memory is freed
        renew_in_children(self)
        self._tickets: Tickets | None = None
        self._watch: Watch | None = None
        self._grant: np.ndarray | None = None
        self._host, self._host_words = device.mailbox(REPORT_WORDS)
        self.mates = exchange.mates
        self.mapped = len(self.mates) == self.size and self._gpus_differ()
        if len(self.mates) == self.size and not self.mapped:
            self.mates = (self.rank,)
        self.one_memory = self.size > 1 and self.mapped and device.kind == "cpu" and not simulates_lanes()
        self._strangers = [r for r in range(self.size) if r not in self.mates]
        self._links = None if self.mapped else self._open_links()
        self.runs, self.launches, self.stays = 0, 0, 0
        self._region: Any = None
        self._sizes = [0] * self.size  # bytes of each region
        self._control = device.zeros(HEARD_AT + self.size * SLOT, np.uint64)
        self._layouts: dict[Any, Layout] = {}

    def _gpus_differ(self) -> bool:
        """Return True if no two ranks have the same GPU.

        Kernels on the same GPU must not wait for each other. If the GPUs differ, their tickets are opened.
        """
        if self.size == 1 or self.device.kind == "cpu":
            return True
        # Compare the UUIDs of the GPUs.
        runtime = self.device.xp.cuda.runtime
        uuid = bytes(runtime.getDeviceProperties(self.device.index)["uuid"])
        uuids = gather_bytes(self.exchange, uuid)
        if len(set(uuids)) < self.size:
            return False
        self._open_tickets(uuids)
        return True

    def _open_links(self) -> Links | None:
        """Open this rank's links to other groups; None if a rank cannot use its links. Collective."""
        if self.device.kind != "cpu":
            return None
        made = None
        with suppress(CapacityError, OSError):
            if (links := self.exchange.links()) is not None:
                made = Links(self.device, links)
        if self.exchange.least(int(made is not None)):
            return made
        if made is not None:
            made.close()
        return None

    def _open_tickets(self, uuids: Sequence[bytes]) -> None:
        """Open the tickets of GPUs on rank 0, and make a word that all ranks map. Collective.

        In it rank 0 writes the number of the stay for which it holds the tickets.
        """
        # Rank 0 opens the tickets, and creates the segment of its word, which all others map.
        place, segment = b"", None
        if self.rank == 0:
            self._tickets = Tickets(uuids)
            if not self.device.background:
                self._watch = Watch(uuids, self._host)
            segment, where = Segment.create(GRANT_BYTES, {})
            place = where.encode()
        place = gather_bytes(self.exchange, place)[0]
        segment = segment or Segment.open(Place.decode(place))
        # All have mapped it: remove its name.
        self.exchange.barrier()
        if self.rank == 0:
            Segment.unlink(Place.decode(place))
        self._grant = segment.data[GRANT_BYTES - 8 :].view(np.int64)

    # ---- memory ------------------------------------------------------------------------------------------------------

    def layout(
        self,
        partition: Partition,
        room: int,
        message: int = 4,
        common: Mapping[str, int] = MappingProxyType({}),
        **arrays: int,
    ) -> Layout:
        """Return the layout of a program's inboxes and arrays. Collective.

        Parameters
        ----------
        partition : Partition
            The ranges of the ranks.
        room : int
            Messages that a rank may send to another between two meetings; 0 if it sends none. Where ranks do not map
            each other's memory, an inbox holds as many as the longest range has vertices.
        message : int
            Bytes of a message, a multiple of 4.
        common : mapping
            The bytes of each array of all ranks, by name. Ranks without `one_memory` have none.
        **arrays
            The bytes of each array in each region.

        Raises
        ------
        CapacityError
            A rank has too little memory for its region. No rank has changed anything.
        """
        if room and not self.mapped:
            room = max(room, partition.widest)
        # Layouts are cached; a larger one than all before grows the regions.
        key = partition.starts, room, message, tuple(arrays.items()), tuple(common.items())
        layout = self._layouts.get(key)
        if layout is None:
            layout = Layout(self.size, room, message, bool(self._strangers), arrays, common)
            sizes = [max(pair) for pair in zip(layout.sizes, self._sizes, strict=True)]
            if sizes != self._sizes:
                self._grow(sizes)
            layout.world, layout.starts = self._struct(layout, partition), partition.starts
            if len(self._layouts) > 16:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _struct(self, layout: Layout, partition: Partition) -> Struct:
        """Return the field `World`: tables of addresses, and the words of this rank."""
        # A rank has an inbox per rank and parity of the meeting.
        device, size, links = self.device, self.size, self._links
        regions = np.array(self._region.addresses, np.uint64)
        own, box = int(regions[self.rank]), layout.box
        parities = [[layout.inboxes + (parity * size + r) * box for r in range(size)] for parity in (0, 1)]
        inboxes = np.array(parities, np.uint64) + np.uint64(own)
        # Messages go to the mates' inboxes, and to outboxes for the others.
        mine = np.array([[row[self.rank]] for row in parities], np.uint64)
        out = regions[None, :] + mine
        for r in self._strangers:
            out[:, r] = own + layout.outboxes + r * box
        tables = [np.asarray(partition.starts, np.uint64), regions, out.reshape(-1), inboxes.reshape(-1)]
        return Struct(
            rank=self.rank, size=size, tables=device.asarray(np.concatenate(tables)),
            control=self._control, host=device.address(self._host_words), patience=PATIENCE[device.kind],
            stay=_stay(device), room=layout.room, message_bytes=layout.message,
            apart=int(not self.mapped and links is None),
            cargo_offset=0 if links is None else layout.told,
            carry=links.function if links else 0, links=device.address(links.words) if links else 0,
            link_count=len(links) if links else 0,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The bytes of this rank's region and of its links."""
        return self._sizes[self.rank] + (0 if self._links is None else int(self._links.words.nbytes))

    def array(self, layout: Layout, name: str, n: int, dtype: Any) -> Array:
        """Return n elements of an array of the own region."""
        return self._region.array(layout.offsets[name], n, dtype)

    def common_array(self, layout: Layout, name: str, n: int, dtype: Any) -> Array:
        """Return n elements of an array of all ranks, in the region of rank 0.

        All ranks meet before the first phase of a program whose layout has such arrays, so each phase may write to it.
        After the program, elements that no rank writes any more may be read until the next program of any rank, so
        within the same call.
        """
        return self._region.array(layout.offsets[name], n, dtype, 0)

    def _grow(self, sizes: list[int]) -> None:
        """Replace the regions of all ranks by larger regions. Collective."""
        # Free the old regions first.
        self._layouts.clear()
        self._free()
        self._region = open_region(self.exchange, self.device, self.mates, sizes)
        self._sizes = sizes

    def _free(self) -> None:
        if self._region is not None:
            self._region.unmap()
            if self.size > 1:
                self.exchange.barrier()
            self._region.free()
        self._region, self._sizes = None, [0] * self.size

    def close(self) -> None:
        """Unmap the other regions and free the own region, from any thread, once a running launch has ended."""
        self._closed = True
        with self._lock:
            for used in (self._watch, self._tickets, self._links):
                if used is not None:
                    used.close()
            region, self._region, self._sizes = self._region, None, [0] * self.size
            self._layouts.clear()
            if region is not None:
                self.device.use()
                region.unmap()
                region.free()

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, library: Library, name: str, layout: Layout, items: int, **fields: Any) -> dict[str, int]:
        """Run the program `name` on all ranks; return the words of its last state by name.

        Parameters
        ----------
        library : Library
            The compiled file of the program.
        layout : Layout
        items : int
            The number of lanes that have work on this rank, which bounds the blocks of a GPU.
        **fields
            The program's fields except `world`, `launch` and `resume`.

        Raises
        ------
        Aborted
            The exchange was aborted. The program has ended on this rank.
        """
        self.runs += 1
        bound = getattr(library, name).bind(world=layout.world, **fields)
        words = self._drive(bound, layout, items)
        return dict(zip(getattr(library, name).source.state, words.tolist(), strict=False))

    def _check(self) -> None:
        if self._closed or self.exchange.aborted():
            why = "closed" if self._closed else "aborted"
            raise Aborted(f"rank {self.rank} of {self.size}: the exchange was {why}")
        if self._links is not None:
            self._links.check()

    def _drive(self, program: Any, layout: Layout, items: int) -> np.ndarray:
        report, resume, end = self._host[REPORT_AT:], ENTERS if layout.common else BEGINS, STAYED
        try:
            while True:
                # All ranks leave together after their stay, and give the tickets back.
                if end == STAYED:
                    self._await_tickets()
                self.launches += 1
                with self._lock:
                    self._check()
                    program(items, launch=self.launches, resume=resume)
                    self.device.synchronize()
                end, resume = int(report[0]), GOES_ON
                if end == ENDED:
                    return report[1:]
                if end == BROKEN:
                    self._check()
                    assert self._links is not None
                    self._links.fail()
                if end == AT_MEETING:
                    self._meet(layout)
                    resume = CARRIED
                elif end == STAYED and self._tickets is not None:
                    self._unwatch()
                    self._tickets.hand_on()
        finally:
            if self._tickets is not None:
                self._unwatch()
                self._tickets.give()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.end()

    def _await_tickets(self) -> None:
        """Return once rank 0 holds the tickets of all GPUs for the next stay."""
        self.stays += 1
        grant = self._grant
        if grant is None:
            return
        if self._tickets is not None:
            self._tickets.take(self._check, last=self.device.background)
            grant[0] = self.stays  # first: the others wait for it
            if self._watch is not None:
                self._watch.begin()
        else:
            wait_until(lambda: bool(grant[0] >= self.stays), self._check)

    def _meet(self, layout: Layout) -> None:
        """Carry the words and the cargo of a meeting, and write the words of all ranks to `control`."""
        # The words of a rank: messages to each rank, its numbers, and the fields of `Shared`.
        meetings, *words = self._host[MEETING_AT : MEETING_AT + 1 + self.size + NUMBERS + SHARES].tolist()
        cargo = Cargo(self.device, self._region, layout, self.mates, meetings)
        every = np.concatenate(self.exchange.carry(np.array(words, np.int64), cargo)).reshape(self.size, -1)
        # The words of a rank that the program reads: messages to this one, the numbers, flags and all messages.
        sent, said = every[:, : self.size], np.empty((self.size, SAID), np.int64)
        said[:, 0], said[:, 1:-1] = sent[:, self.rank], every[:, self.size : self.size + NUMBERS]
        said[:, -1] = (sent.sum(1) << FLAG_BITS) | np.where((sent > layout.room).any(1), OVERFLOWED, 0)
        # Each is two words with 32 bits of it, as at a meeting in memory.
        halves = said.reshape(-1).view(np.uint32).astype(np.uint64)
        self._control[HEARD_AT : HEARD_AT + len(halves)] = self.device.asarray(halves)
