"""Cargo of another group: nothing is taken that lies outside of what the own program shares, or its vertices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from group_messages import NUMBERS, ROWS, Message, check_what_fits, differs, lists, meet_changed, sends

from mgraph.exchange import Exchange, ExchangeError


def takes(kind: str, change: Callable[[Message], None] | None = None, cut: int | None = None) -> Any:
    """What rank 0 has after a meeting with a rank 1 whose message was changed, and is cut to its first bytes."""

    def send(exchange: Exchange, message: Message) -> None:
        words = np.array([*message.sent, *[0] * NUMBERS, *message.shared.values()], np.int64)
        data = np.frombuffer((words.tobytes() + message.cargo)[:cut], np.uint8)
        (pair,) = exchange._pairs.values()
        with suppress(threading.BrokenBarrierError):  # rank 0 has closed the pair
            pair.swap_values([data, data])

    return meet_changed("carried", kind, change, send)


def test_what_fits_is_taken() -> None:
    check_what_fits(takes)
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
