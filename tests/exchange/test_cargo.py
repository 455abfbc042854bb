"""Cargo of another group: nothing is taken that lies outside of what the own program shares, or its vertices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from test_gateway_messages import (
    ARRAYS,
    NUMBERS,
    PROGRAM,
    ROWS,
    SHARED,
    Message,
    differs,
    lists,
    records,
    sends,
    shares,
)
from test_world import together

from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import Exchange, ExchangeError
from mgraph.kernels import load
from mgraph.partition import Partition


def takes(kind: str, change: Callable[[Message], None] = lambda message: None, cut: int | None = None) -> Any:
    """What rank 0 has after a meeting with a rank 1 whose message was changed, and is cut to its first bytes."""

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
        cargo = {"list": records(ROWS + 5), "bits": np.uint64([1 << 5]).tobytes(), "array": bytes(range(4)) * ROWS}
        message = Message(shared, cargo=cargo.get(kind, b""))
        change(message)
        words = np.array([*message.sent, *[0] * NUMBERS, *message.shared.values()], np.int64)
        data = np.frombuffer((words.tobytes() + message.cargo)[:cut], np.uint8)
        (pair,) = exchange._pairs.values()
        with suppress(threading.BrokenBarrierError):  # rank 0 has closed the pair
            pair.swap_values([data, data])
        return None

    first, second = together(2, work, "carried")
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
    assert takes("none", sends(ROWS + 1))["messages"] == ROWS + 1  # more than fit


def elsewhere(name: str) -> Any:
    return pytest.param("list", differs(name), None, f"shares .*'{name}'", id=f"{name} elsewhere")


@pytest.mark.parametrize(
    ("kind", "change", "cut", "said"),
    [
        pytest.param("list", lists(5), None, "lists vertex 5; its vertices are 64 to 127", id="another rank's vertex"),
        pytest.param("list", lists(ROWS + 1, 2 * ROWS), None, "lists vertex 128; its", id="a vertex past the end"),
        pytest.param("list", lists(*[ROWS] * (ROWS + 1)), None, "lists 65 vertices; it has 64", id="too many vertices"),
        pytest.param("list", differs("count", -2), None, "lists -1 vertices; it has 64", id="fewer than none"),
        *[elsewhere(name) for name in ("bits", "wide", "narrow")],
        pytest.param("list", differs("vertices", -1 << 20), None, "shares .*'vertices': False", id="no list"),
        pytest.param("bits", differs("bits"), None, "shares .*'bits'", id="other bits"),
        pytest.param("array", differs("array"), None, "shares .*'array'", id="array elsewhere"),
        pytest.param("array", differs("width", 4, bytes(8 * ROWS)), None, "'width': 8", id="another width"),
        pytest.param("none", differs("bits", 4097, bytes(8)), None, "shares .*'bits': 4096", id="unshared bits"),
        pytest.param(
            "none", sends(-1), None, "sends -1 messages; the least number is 0", id="fewer messages than none"
        ),
        pytest.param("none", lambda message: None, 40, "sends 40 bytes of words instead of 112", id="few words"),
        pytest.param("none", lambda message: None, 0, "sends 0 bytes of words instead of 112", id="nothing"),
        pytest.param("array", lambda message: None, -8, "sends 248 bytes of cargo instead of 256", id="little cargo"),
        pytest.param("none", differs("bits", 0, bytes(8)), None, "sends 8 bytes of cargo instead of 0", id="too much"),
    ],
)
def test_what_does_not_fit_is_an_error(
    kind: str, change: Callable[[Message], None], cut: int | None, said: str
) -> None:
    with pytest.raises(ExchangeError, match=f"rank 1 .*{said}"):
        raise takes(kind, change, cut)
