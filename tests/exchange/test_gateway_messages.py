"""What a gateway takes from the gateway of another host: nothing that lies outside of what its own program shares."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange_ranks import LIMIT
from test_world import together

from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import Exchange
from mgraph.exchange.links import UNFIT
from mgraph.kernels import constants, load
from mgraph.partition import Partition

PROGRAM = str(Path(__file__).parents[1] / "support" / "sharing.cuh")
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


def takes(kind: str, change: Any = None) -> dict[str, Any]:
    """What rank 0 has after a meeting with a rank 1 whose message was changed."""

    def work(exchange: Exchange, device: Device) -> Any:
        own = exchange.world(device)
        layout = own.layout(Partition.equal(2 * ROWS, 2), 8, 4, **ARRAYS)
        shared = shares(kind, layout.offsets)
        if exchange.rank == 0:
            fields = dict.fromkeys(SHARED, -1) | {"count": 0, "width": 0} | shared
            state = own.run(load(device, PROGRAM), "Sharing", layout, 1, **fields)
            arrays = {"bits": np.uint32, "wide": np.uint64, "narrow": np.uint32}
            return state | {name: own.array(layout, name, 2 * ROWS, dtype).copy() for name, dtype in arrays.items()}
        cargo = {"list": records(ROWS + 5), "bits": struct.pack("<2Q", 1 << 5, 0), "array": bytes(range(4)) * ROWS}
        message = Message(dict(shared), cargo=cargo.get(kind, b""))
        if change is not None:
            change(message)
        with socket.socket(fileno=os.dup(exchange.links()[0].out)) as end:
            end.settimeout(LIMIT)
            end.sendall(message.encode())
            assert end.recv(1)  # what rank 0 says
        return None

    first, second = together(2, work, "hosts")
    assert second is None
    if isinstance(first, BaseException):
        raise first
    return first


def test_what_fits_is_taken() -> None:
    listed = takes("list")
    assert listed["bits"].nonzero()[0].tolist() == [(ROWS + 5) // 32]
    assert listed["bits"][(ROWS + 5) // 32] == 1 << (ROWS + 5) % 32
    for name, first in (("narrow", 7), ("wide", 70)):
        assert listed[name].nonzero()[0].tolist() == [ROWS + 5]
        assert listed[name][ROWS + 5] == first + ROWS + 5
    assert takes("bits")["bits"].tolist() == [0, 0, 1 << 5] + [0] * (2 * ROWS - 3)
    assert takes("array")["narrow"].tolist() == [0] * ROWS + [0x03020100] * ROWS
    assert takes("none")["messages"] == 0


def sends(count: int, flags: int = 0) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        message.sent, message.flags, message.cargo = (count, 0), flags, bytes(4 * max(0, min(count, ROWS)))

    return change


def test_more_messages_than_fit_are_told() -> None:
    assert takes("none", sends(ROWS + 1, OVERFLOWED))["messages"] == ROWS + 1


def differs(name: str, by: int = 8, cargo: bytes | None = None) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        message.shared[name] = message.shared.get(name, -1) + by
        message.cargo = message.cargo if cargo is None else cargo

    return change


def lists(*vertices: int) -> Callable[[Message], None]:
    return differs("count", len(vertices) - 1, records(*vertices))


def head(name: str, value: int) -> Callable[[Message], None]:
    return lambda message: message.head.update({name: value})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param("list", lists(5), id="a vertex of another rank"),
        pytest.param("list", lists(ROWS + 1, 2 * ROWS), id="a vertex past the end"),
        pytest.param("list", lists(*[ROWS] * (ROWS + 1)), id="more vertices than there are"),
        pytest.param("list", differs("count", -2), id="fewer than none"),
        *[pytest.param("list", differs(name), id=f"{name} elsewhere") for name in ("bits", "wide", "narrow")],
        pytest.param("list", differs("bits", -1 << 20), id="no bits"),
        pytest.param("bits", differs("bits"), id="bits elsewhere"),
        pytest.param("array", differs("array"), id="array elsewhere"),
        pytest.param("array", differs("width", 4, bytes(8 * ROWS)), id="another width"),
        pytest.param("none", differs("bits", 4097, bytes(16)), id="bits that nobody shares"),
        pytest.param("none", sends(-1), id="fewer messages than none"),
        pytest.param("none", sends(ROWS + 1), id="more messages than fit"),
        pytest.param("none", head("bytes", 0), id="another length"),
        pytest.param("none", head("meeting", TAG + 1), id="another meeting"),
        pytest.param("none", head("code", 0), id="no call"),
        pytest.param("none", head("code", -1), id="a negative call"),
    ],
)
def test_what_does_not_fit_is_an_error(kind: str, change: Callable[[Message], None]) -> None:
    with pytest.raises(Aborted, match=f"in call {UNFIT}"):
        takes(kind, change)
