"""What a gateway takes from the gateway of another host: nothing that lies outside of what its own program shares."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from exchange_ranks import LIMIT
from group_messages import OVERFLOWED, ROWS, TAG, Message, check_what_fits, differs, lists, meet_changed, sends

from mgraph.errors import Aborted
from mgraph.exchange import Exchange
from mgraph.exchange.links import UNFIT


def takes(kind: str, change: Callable[[Message], None] | None = None) -> Any:
    """What rank 0 has after a meeting with a rank 1 whose message was changed."""

    def send(exchange: Exchange, message: Message) -> None:
        with socket.socket(fileno=os.dup(exchange.links()[0].out)) as end:
            end.settimeout(LIMIT)
            end.sendall(message.encode())
            assert end.recv(1)  # what rank 0 says

    return meet_changed("hosts", kind, change, send)


def test_what_fits_is_taken() -> None:
    check_what_fits(takes)


def test_more_messages_than_fit_are_reported() -> None:
    assert takes("none", sends(ROWS + 1, OVERFLOWED))["messages"] == ROWS + 1


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
