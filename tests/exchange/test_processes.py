"""Exchanges between real processes: who dies during what, and how long messages take."""

from __future__ import annotations

from functools import partial

import pytest
from exchange_programs import KILLED, STOPPED, die_then_wait, parts_of_all_sizes
from exchange_ranks import run_processes

from mgraph.exchange.ucxx_api import ucx_installed

KINDS = [
    "tcp",
    "peer",
    pytest.param("ucx", marks=pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")),
]


def test_peer_dies_during_exchange_and_tcp_notices() -> None:
    answers = run_processes("tcp", 3, partial(die_then_wait, how=KILLED, tell=False), lost=[2])
    for waited, message in answers[:2]:
        assert waited < 1
        assert "rank" in message
        assert "has closed its connection" in message


@pytest.mark.parametrize("how", [KILLED, STOPPED], ids=["killed", "stopped"])
@pytest.mark.parametrize("kind", KINDS)
def test_peer_dies_during_exchange_and_the_others_are_notified(kind: str, how: int) -> None:
    answers = run_processes(kind, 3, partial(die_then_wait, how=how, tell=True), lost=[2])
    for waited, message in answers[:2]:
        assert waited < 1.3  # told after 0.3 s
        assert "rank" in message


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_exchange(kind: str) -> None:
    run_processes(kind, 2, parts_of_all_sizes)
