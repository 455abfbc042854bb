"""Programs of all ranks of a graph, and the drivers of their phases.

A program is a kernel file with phases (see ``kernels/world_common.cuh``). Where all ranks map each other's memory, one
launch on each runs all phases, and the ranks meet in memory after each. Elsewhere the host runs the phases one by one,
and the exchange carries their numbers, and what they send and share with ranks whose memory is not mapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import Aborted
from mgraph.exchange.gpu_tickets import Tickets
from mgraph.exchange.regions import Collectives, Layout, gather_bytes, open_region
from mgraph.exchange.segment import Place, Segment
from mgraph.exchange.waiting import wait_until
from mgraph.kernels import Library, Struct, constants, load
from mgraph.partition import Partition

__all__ = ["World"]

LAYOUT = constants("kernels/world_common.cuh")
NUMBERS, SAID, SLOT = LAYOUT["number_count"], LAYOUT["said_words"], LAYOUT["slot_words"]
STATE_WORDS, FLAG_BITS = LAYOUT["state_words"], LAYOUT["flag_bits"]
MEETINGS_AT, STATE_AT, HEARD_AT = LAYOUT["meetings_at"], LAYOUT["state_at"], LAYOUT["heard_at"]
ALONE_AT, SHARES_AT = LAYOUT["alone_at"], LAYOUT["shares_at"]
COUNTS_AT, REPORT_AT = LAYOUT["counts_at"], LAYOUT["report_at"]
OVERFLOWED = LAYOUT["overflowed"]
ENDED, WAITS, STAYED = range(3)  # of the enum End
PATIENCE = {"cuda": 2_000_000, "cpu": 5_000_000}  #: nanoseconds that a launch waits for another rank
STAY = 1 << 60  #: nanoseconds after which a launch leaves a GPU
STAY_IN_BACKGROUND = 2_000_000  #: of a copy, so that batches of its graph get through
STAY_OF_CPU = 10  #: the same on a CPU, in times of its patience: the host looks for an abort
GRANT_BYTES = 4096  #: of the segment with the word of rank 0


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
        Connected. It carries the regions' names, and everything where ranks do not map each other's memory.
    device : Device

    Attributes
    ----------
    mates : tuple of int
        The ranks whose regions this rank maps, itself among them.
    mapped : bool
        True if these are all ranks, which then meet in memory. Otherwise the host drives programs; what they send and
        share among mates goes through memory, what goes to others through the exchange.

    Notes
    -----
    All ranks make the same calls. A region is grown by all of them together and holds nothing between two programs.
    """

    def __init__(self, exchange: Collectives, device: Device) -> None:
        self.exchange, self.device = exchange, device
        self.rank, self.size = exchange.rank, exchange.size
        self._tickets: Tickets | None = None
        self._grant: np.ndarray | None = None
        self.mates = exchange.mates
        self.mapped = len(self.mates) == self.size and self._gpus_differ()
        if len(self.mates) == self.size and not self.mapped:
            self.mates = (self.rank,)
        self._strangers = [r for r in range(self.size) if r not in self.mates]
        self._apart = self._who_is_apart()
        self.launches, self.stays = 0, 0
        self._region: Any = None
        self._control = device.zeros(HEARD_AT + self.size * SLOT, np.uint64)
        self._counts = self._control[COUNTS_AT : COUNTS_AT + self.size + NUMBERS].view(np.int64)
        self._host, self._host_words = device.mailbox(REPORT_AT + 1 + STATE_WORDS)
        self._layouts: dict[Any, Layout] = {}

    def _who_is_apart(self) -> np.ndarray:
        """Return which rank does not map the memory of which other: bool[size, size]."""
        table = np.zeros((self.size, self.size), np.int64)
        table[self.rank, self._strangers] = 1
        if self.mapped:
            return table > 0
        return self.exchange.allreduce(table.reshape(-1)).reshape(table.shape) > 0

    def _gpus_differ(self) -> bool:
        """Return True if no two ranks have the same GPU.

        On a common GPU their kernels must not wait for each other. Rank 0 then has the tickets of the GPUs, and a word
        that all ranks map, in which it writes the number of the stay for which it holds them.
        """
        if self.size == 1 or self.device.kind == "cpu":
            return True
        # Compare the UUIDs of the GPUs.
        runtime = self.device.xp.cuda.runtime
        uuid = bytes(runtime.getDeviceProperties(self.device.index)["uuid"])
        uuids = gather_bytes(self.exchange, uuid)
        if len(set(uuids)) < self.size:
            return False
        # Rank 0 opens the tickets, and creates the segment of its word, which all others map.
        place, segment = b"", None
        if self.rank == 0:
            self._tickets = Tickets(uuids)
            segment, where = Segment.create(GRANT_BYTES, {})
            place = where.encode()
        place = gather_bytes(self.exchange, place)[0]
        segment = segment or Segment.open(Place.decode(place))
        # All have mapped it: its name can go.
        self.exchange.barrier()
        if self.rank == 0:
            Segment.unlink(Place.decode(place))
        self._grant = segment.data[GRANT_BYTES - 8 :].view(np.int64)
        return True

    # ---- memory ------------------------------------------------------------------------------------------------------

    def layout(self, partition: Partition, room: int, message: int = 4, **arrays: int) -> Layout:
        """Return the layout of a program's inboxes and arrays. Collective.

        Parameters
        ----------
        partition : Partition
            The ranges of the ranks.
        room : int
            Messages that a rank may send to another between two meetings; 0 if it sends none. Where the host drives
            the program, an inbox holds as many as the longest range has vertices.
        message : int
            Bytes of a message, a multiple of 4.
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
        key = partition.starts, room, message, tuple(arrays.items())
        layout = self._layouts.get(key)
        if layout is None:
            layout = Layout(self.size, room, message, arrays)
            if layout.nbytes > self.exchange.region_nbytes:
                self._grow(layout.nbytes)
            layout.world, layout.starts = self._struct(layout, partition), partition.starts
            if len(self._layouts) > 16:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _struct(self, layout: Layout, partition: Partition) -> Struct:
        """Return the field `World`: tables of addresses, and the words of this rank."""
        # A rank has an inbox per rank and parity of the meeting.
        device, size = self.device, self.size
        regions = np.array(self._region.addresses, np.uint64)
        own, box = int(regions[self.rank]), layout.message * layout.room
        parities = [[layout.inboxes + (parity * size + r) * box for r in range(size)] for parity in (0, 1)]
        inboxes = np.array(parities, np.uint64) + np.uint64(own)
        # Messages go to the mates' inboxes, and to an outbox for the host.
        mine = np.array([[row[self.rank]] for row in parities], np.uint64)
        out = regions[None, :] + mine
        if self._strangers:
            layout.outbox = device.empty(size * box // 4, np.uint32)
            for r in self._strangers:
                out[:, r] = device.address(layout.outbox) + r * box
        return Struct(
            rank=self.rank, size=size, starts=device.asarray(np.asarray(partition.starts, np.int64)),
            regions=device.asarray(regions), out=device.asarray(out.reshape(-1)),
            **{"in": device.asarray(inboxes.reshape(-1))}, control=self._control, counts=self._counts,
            host=device.address(self._host_words), patience=PATIENCE[device.kind], room=layout.room,
            stay=_stay(device),
        )  # fmt: skip

    def array(self, layout: Layout, name: str, n: int, dtype: Any) -> Array:
        """Return n elements of an array of the own region."""
        return self._region.array(layout.offsets[name], n, dtype)

    def _grow(self, nbytes: int) -> None:
        """Replace the regions of all ranks by larger regions. Collective."""
        # Free the old regions first.
        self._layouts.clear()
        self._free()
        self._region = open_region(self.exchange, self.device, self.mates, nbytes)
        self.exchange.region_nbytes = nbytes

    def _free(self) -> None:
        if self._region is not None:
            self._region.unmap()
            if self.size > 1:
                self.exchange.barrier()
            self._region.free()
        self._region, self.exchange.region_nbytes = None, 0

    def close(self) -> None:
        """Unmap the other regions and free the own region, without waiting for other ranks."""
        if self._tickets is not None:
            self._tickets.close()
        region, self._region, self.exchange.region_nbytes = self._region, None, 0
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
            Lanes' worth of work on this rank, which bounds the blocks of a GPU.
        **fields
            The program's fields but for `world`, `launch` and `resume`.

        Raises
        ------
        Aborted
            The exchange was aborted. The program has ended on this rank.
        """
        bound = getattr(library, name).bind(world=layout.world, **fields)
        words = self._drive(bound, items) if self.mapped else self._drive_by_host(library, name, layout, items, fields)
        return dict(zip(getattr(library, name).source.state, words.tolist(), strict=False))

    def _check(self) -> None:
        if self.exchange.aborted():
            raise Aborted(f"rank {self.rank} of {self.size}: the exchange was aborted")

    def _drive(self, program: Any, items: int) -> np.ndarray:
        report, resume, end = self._host[REPORT_AT:], 0, STAYED
        try:
            while True:
                # All ranks of GPUs leave together after their stay, and give the tickets back.
                if end == STAYED:
                    self._await_tickets()
                self._check()
                self.launches += 1
                program(items, launch=self.launches, resume=resume)
                self.device.synchronize()
                end, resume = int(report[0]), 1
                if end == ENDED:
                    return report[1:]
                if end == STAYED and self._tickets is not None:
                    self._tickets.give()
        finally:
            if self._tickets is not None:
                self._tickets.give()

    def _await_tickets(self) -> None:
        """Return once rank 0 holds the tickets of all GPUs for the next stay."""
        self.stays += 1
        grant = self._grant
        if grant is None:
            return
        if self._tickets is not None:
            self._tickets.take(self._check, last=self.device.background)
            grant[0] = self.stays
        else:
            wait_until(lambda: bool(grant[0] >= self.stays), self._check)

    def _drive_by_host(self, library: Library, name: str, layout: Layout, items: int, fields: Any) -> np.ndarray:
        """Run the program phase by phase, with a read-back each.

        A phase is its work, the exchange of numbers and messages, and the choice of the next phase.
        """
        step, after = (
            getattr(library, name + suffix).bind(world=layout.world, **fields) for suffix in ("_step", "_next")
        )
        said, resume = np.zeros((self.size, SAID), np.int64), 0
        while True:
            self._check()
            # The work of the phase.
            self.device.fill(self._counts, 0)
            step(items, launch=0, resume=resume)
            control = Device.to_host(self._control).view(np.int64)
            if control[STATE_AT] == 0:
                return control[STATE_AT:]
            # The exchange, and the next phase.
            counts = control[COUNTS_AT : COUNTS_AT + self.size + NUMBERS]
            self._say(layout, said, counts, bool(control[ALONE_AT]), int(control[MEETINGS_AT]))
            bits, vertices, count, wide, narrow, array, width = control[SHARES_AT : SHARES_AT + 7].tolist()
            if vertices >= 0:
                self._share_listed(layout, bits, vertices, count, wide, narrow)
            elif bits >= 0:
                self._share_bits(layout, bits)
            elif array >= 0:
                self._share_array(layout, array, width)
            if max(vertices, bits, array) >= 0 and len(self.mates) > 1:  # what they store next may be in the same words
                self.device.synchronize()
                self.exchange.barrier_of_mates()
            after(1, launch=0, resume=resume)
            resume = 1

    def _say(self, layout: Layout, said: np.ndarray, counts: np.ndarray, alone: bool, meetings: int) -> None:
        """Exchange numbers and messages, and write all ranks' numbers to `control`."""
        # Reduce the counts of messages and the numbers of all ranks.
        own = np.zeros((self.size, self.size + NUMBERS), np.int64)
        own[self.rank] = counts
        every = own if alone else self.exchange.allreduce(own.reshape(-1)).reshape(own.shape)
        for r in [self.rank] if alone else range(self.size):
            sent = every[r, : self.size]
            flags = OVERFLOWED if (sent > layout.room).any() else 0
            said[r] = [sent[self.rank], *every[r, self.size :], sent.sum() << FLAG_BITS | flags]
        # The program reads them as halves of 32 bits.
        halves = said.reshape(-1).view(np.uint32).astype(np.uint64)
        self._control[HEARD_AT : HEARD_AT + len(halves)] = self.device.asarray(halves)
        # Send the messages for other hosts to the inboxes of this meeting's parity.
        if not alone and every[:, : self.size].any():
            words = layout.message // 4
            box = layout.outbox.reshape(self.size, layout.room * words)
            parts = [box[r, :0] for r in range(self.size)]
            for r in self._strangers:
                parts[r] = box[r, : min(int(counts[r]), layout.room) * words]
            inboxes = self._region.array(layout.inboxes, 2 * box.size, np.uint32)
            inboxes = inboxes.reshape(2, *box.shape)[meetings & 1]
            lengths = np.where(self._apart, np.minimum(every[:, : self.size], layout.room) * words, 0)
            received = self.exchange.alltoallv(parts, lengths)
            for r in self._strangers:
                inboxes[r, : len(received[r])] = received[r]

    def _share_array(self, layout: Layout, offset: int, width: int) -> None:
        """All-gather each rank's elements of an array with `width` bytes per vertex."""
        starts = layout.starts
        array = self._region.array(offset, starts[-1], f"u{width}")
        every = self.exchange.allgather(array[starts[self.rank] : starts[self.rank + 1]], np.diff(starts))
        for r in self._strangers:
            array[starts[r] : starts[r + 1]] = every[r]

    def _share_bits(self, layout: Layout, offset: int) -> None:
        """All-gather the words of a bitmap that hold each rank's vertices."""
        starts, words = layout.starts, (layout.starts[-1] + 31) // 32
        bitmap = self._region.array(offset, words, np.uint32)
        spans = [slice(starts[r] // 32, -(-starts[r + 1] // 32)) for r in range(self.size)]
        lengths = np.array([span.stop - span.start for span in spans])
        every = self.exchange.allgather(bitmap[spans[self.rank]], lengths)
        for r in self._strangers:
            bitmap[spans[r]] |= every[r]

    def _share_listed(self, layout: Layout, bits: int, vertices: int, count: int, wide: int, narrow: int) -> None:
        """All-gather the bits and elements of each rank's listed vertices. The arguments are those of `Shared`."""
        # The arrays of the own region; None for those that are not shared.
        n = layout.starts[-1]
        shapes = {
            "bits": (bits, (n + 31) // 32, np.uint32),
            "wide": (wide, n, np.uint64),
            "narrow": (narrow, n, np.uint32),
        }
        arrays = {name: None if shape[0] < 0 else self._region.array(*shape) for name, shape in shapes.items()}
        # A record of 16 bytes is a vertex with its elements.
        library = load(self.device, "kernels/shared_values.cuh", CHUNK_WORDS=1)
        listed, records = self._region.array(vertices, count, np.uint32), self.device.empty(2 * count, np.uint64)
        library.PackValues(
            count, vertices=listed, n=count, records=records, wide=arrays["wide"], narrow=arrays["narrow"]
        )
        every = self.exchange.allgather(records)
        for r in self._strangers:
            library.TakeValues(len(every[r]) // 2, records=every[r], n=len(every[r]) // 2, **arrays)
