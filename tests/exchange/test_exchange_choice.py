"""Which exchange a graph gets, and which it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange.choice import check_exchange, choose_exchange

TWO = ["tcp://a:1", "tcp://b:1"]


def found(**of_the_second: bool) -> list[dict[str, Any]]:
    """What two workers report; the second may lack something."""
    whole = {"gpus": 1, "ucx": True, "nccl": True}
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


def test_nccl_is_for_gpus() -> None:
    check_exchange("nccl", 2)
    assert choose_exchange("nccl", "cuda", TWO, found(ucx=False)) == "nccl"
    with pytest.raises(InvalidOption, match="transfers GPU memory only, and the device is 'cpu'"):
        choose_exchange("nccl", "cpu", TWO, found())
    with pytest.raises(DeviceError, match="nvidia-nccl.*: tcp://b:1$"):
        choose_exchange("nccl", "cuda", TWO, found(nccl=False))


def test_on_a_cluster_with_tls_auto_is_encrypted_and_others_warn() -> None:
    workers = ["tls://a:1", "tls://b:1"]
    assert choose_exchange("auto", "cuda", workers, found(), "why") == "tcp"
    assert choose_exchange("auto", "cuda", workers, found()) == "peer"  # nothing leaves the host
    assert choose_exchange("auto", "cuda", workers[:1], found()[:1]) == "loopback"
    for name, says in (("ucx", "listens on every interface"), ("nccl", "unencrypted")):
        with pytest.warns(UserWarning, match=says):
            assert choose_exchange(name, "cuda", workers, found()) == name
