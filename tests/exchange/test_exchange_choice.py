"""Which exchange a graph gets, and which it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange.choice import check_exchange, choose_exchange

TWO = ["tcp://a:1", "tcp://b:1"]


def found(**of_the_second: bool) -> list[dict[str, Any]]:
    """What two workers report; the second may lack something."""
    whole = {"gpus": 1, "ucx": True}
    return [whole, {**whole, **of_the_second}]


def test_auto_takes_peer_on_one_host_then_ucx_on_gpus_and_tcp_elsewhere() -> None:
    for device in ("cpu", "cuda"):
        assert choose_exchange("auto", device, TWO, found()) == "peer"
    assert choose_exchange("auto", "cuda", TWO, found(), "why") == "ucx"
    assert choose_exchange("auto", "cuda", TWO, found(ucx=False), "why") == "tcp"
    assert choose_exchange("auto", "cpu", TWO, found(), "why") == "tcp"
    assert choose_exchange("auto", "cuda", TWO[:1], found()[:1]) == "loopback"


def test_peer_by_name_is_refused_with_the_reason() -> None:
    assert choose_exchange("peer", "cpu", TWO, found()) == "peer"
    with pytest.raises(DeviceError, match="cannot map each other's memory: no space; it is for workers of one host"):
        choose_exchange("peer", "cpu", TWO, found(), "no space")


def test_ucx_by_name_is_refused_where_a_worker_has_no_ucxx() -> None:
    assert choose_exchange("ucx", "cuda", TWO, found(), "why") == "ucx"
    with pytest.raises(DeviceError, match="no UCXX .*: tcp://b:1$"):
        choose_exchange("ucx", "cuda", TWO, found(ucx=False))


def test_a_retired_name_warns_and_an_unknown_one_is_refused() -> None:
    with pytest.warns(FutureWarning, match='Write exchange="auto": the next release refuses "nccl"'):
        check_exchange("nccl", 2)
    with pytest.raises(InvalidOption, match="'mpi' is none of 'auto', 'loopback', 'peer', 'tcp', 'ucx'$"):
        check_exchange("mpi", 2)


def test_on_a_cluster_with_tls_auto_is_encrypted_and_others_warn() -> None:
    workers = ["tls://a:1", "tls://b:1"]
    assert choose_exchange("auto", "cuda", workers, found(), "why") == "tcp"
    assert choose_exchange("auto", "cuda", workers, found()) == "peer"  # nothing leaves the host
    assert choose_exchange("auto", "cuda", workers[:1], found()[:1]) == "loopback"
    with pytest.warns(UserWarning, match="unencrypted .* listens on every interface"):
        assert choose_exchange("ucx", "cuda", workers, found()) == "ucx"
