"""What a rank of another group says at a meeting, right or changed, and what rank 0 takes of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import together

from mgraph.device import Device
from mgraph.errors import Aborted, ExchangeError
from mgraph.exchange import Exchange
from mgraph.kernels import constants, load
from mgraph.partition import Partition

PROGRAM = str(Path(__file__).with_name("sharing.cuh"))
NUMBERS, OVERFLOWED = (constants("kernels/world_common.cuh")[name] for name in ("number_count", "overflowed"))
ROWS, CODE, TAG = 64, 1, 1  #: per rank; of the first meeting
ARRAYS = {"bits": 8 * ROWS, "list": 4 * ROWS, "wide": 16 * ROWS, "narrow": 8 * ROWS}
SHARED = ("bits", "vertices", "count", "wide", "narrow", "array", "width")


@dataclass
class Message:
    """What rank 1 says; its messages to both ranks, and the values that it shares."""

    shared: dict[str, int]
    sent: tuple[int, int] = (0, 0)
    flags: int = 0
    cargo: bytes = b""
    head: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        shared = dict.fromkeys(SHARED, -1) | {"count": 0, "width": 0} | self.shared
        words = *self.sent, *shared.values(), *[0] * NUMBERS, self.flags
        body = struct.pack(f"<{len(words)}q", *words) + self.cargo
        head = {"meeting": TAG, "code": CODE, "bytes": len(body)} | self.head
        return struct.pack("<3q", *head.values()) + body


def records(*vertices: int) -> bytes:
    return b"".join(struct.pack("<IIQ", v, 7 + v, 70 + v) for v in vertices)


def shares(kind: str, offsets: dict[str, int]) -> dict[str, int]:
    if kind == "list":
        names = {"vertices": offsets["list"], "count": 1, "wide": offsets["wide"], "narrow": offsets["narrow"]}
        return names | {"bits": offsets["bits"]}
    if kind == "bits":
        return {"bits": offsets["bits"]}
    return {"array": offsets["narrow"], "width": 4} if kind == "array" else {}


def sends(count: int, flags: int = 0) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        message.sent, message.flags, message.cargo = (count, 0), flags, bytes(4 * max(0, min(count, ROWS)))

    return change


def differs(name: str, by: int = 8, cargo: bytes | None = None) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        message.shared[name] = message.shared.get(name, -1) + by
        message.cargo = message.cargo if cargo is None else cargo

    return change


def lists(*vertices: int) -> Callable[[Message], None]:
    return differs("count", len(vertices) - 1, records(*vertices))


def meet_changed(
    mapped: str, kind: str, change: Callable[[Message], None] | None, send: Callable[[Exchange, Message], None]
) -> Any:
    """What rank 0 has, or its error, after a meeting with a rank 1 that changes its message and sends it by `send`."""

    def work(exchange: Exchange, device: Device) -> Any:
        own = exchange.world(device)
        layout = own.layout(Partition.equal(2 * ROWS, 2), 8, 4, **ARRAYS)
        shared = dict.fromkeys(SHARED, -1) | {"count": 0, "width": 0} | shares(kind, layout.offsets)
        if exchange.rank == 0:
            try:
                state = own.run(load(device, PROGRAM), "Sharing", layout, 1, **shared)
            except ExchangeError as error:
                with pytest.raises(Aborted, match="failed before: rank 1"):
                    exchange.barrier()
                return error
            arrays = {"bits": np.uint32, "wide": np.uint64, "narrow": np.uint32}
            return state | {name: own.array(layout, name, 2 * ROWS, dtype).copy() for name, dtype in arrays.items()}
        padding = bytes(8) if mapped == "hosts" else b""  # gateways send multiples of 16 bytes
        cargo = {
            "list": records(ROWS + 5),
            "bits": struct.pack("<Q", 1 << 5) + padding,
            "array": bytes(range(4)) * ROWS,
        }
        message = Message(shared, cargo=cargo.get(kind, b""))
        if change is not None:
            change(message)
        send(exchange, message)
        return None

    first, second = together(2, work, mapped)
    assert second is None
    if isinstance(first, BaseException):
        raise first
    return first


def check_what_fits(takes: Callable[[str], dict[str, Any]]) -> None:
    """Check what rank 0 has taken from a message that fits, of each kind."""
    listed = takes("list")
    assert listed["bits"].nonzero()[0].tolist() == [(ROWS + 5) // 32]
    assert listed["bits"][(ROWS + 5) // 32] == 1 << (ROWS + 5) % 32
    for name, first in (("narrow", 7), ("wide", 70)):
        assert listed[name].nonzero()[0].tolist() == [ROWS + 5]
        assert listed[name][ROWS + 5] == first + ROWS + 5
    assert takes("bits")["bits"].tolist() == [0, 0, 1 << 5] + [0] * (2 * ROWS - 3)
    assert takes("array")["narrow"].tolist() == [0] * ROWS + [0x03020100] * ROWS
    assert takes("none")["messages"] == 0
