"""Which exchange a graph gets, and which it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange.choice import MOST_WORKERS, check_exchange, choose_exchange
from mgraph.exchange.groups import Apart, Groups
from mgraph.kernels import constants

TWO = ["tcp://a:1", "tcp://b:1"]
APART = Apart("another host", (0, 1))


def found(**of_the_second: bool) -> list[dict[str, Any]]:
    """What two workers report; the second may lack something."""
    whole = {"gpus": 1, "ucx": True}
    return [whole, {**whole, **of_the_second}]


def test_auto_takes_peer_on_one_host_then_ucx_on_gpus_and_tcp_elsewhere() -> None:
    for device in ("cpu", "cuda"):
        assert choose_exchange("auto", device, TWO, found()) == "peer"
    assert choose_exchange("auto", "cuda", TWO, found(), APART) == "ucx"
    assert choose_exchange("auto", "cuda", TWO, found(ucx=False), APART) == "tcp"
    assert choose_exchange("auto", "cpu", TWO, found(), APART) == "tcp"
    assert choose_exchange("auto", "cuda", TWO[:1], found()[:1]) == "loopback"


def test_workers_of_a_host_are_a_group_where_there_are_several_hosts() -> None:
    four, seen = [f"tcp://{host}:{port}" for host in "ab" for port in (1, 2)], found() * 2
    groups = Groups.by_reach([[0, 1], [0, 1], [2, 3], [2, 3]])
    assert groups == (0, 0, 1, 1)
    assert choose_exchange("auto", "cpu", four, seen, Apart("why", groups)) == "peer+tcp:0,0,1,1"
    assert choose_exchange("auto", "cuda", four, seen, Apart("why", groups)) == "peer+ucx:0,0,1,1"
    assert choose_exchange("peer+tcp", "cuda", four, seen, Apart("why", groups)) == "peer+tcp:0,0,1,1"
    assert choose_exchange("peer+tcp", "cuda", four, seen) == "peer"  # one host
    assert choose_exchange("peer+tcp", "cuda", four, seen, Apart("why", (0, 1, 2, 3))) == "tcp"
    assert choose_exchange("peer+tcp:0,1,1,0", "cpu", four, seen) == "peer+tcp:0,1,1,0"  # as it was told


def test_ranks_that_reach_each_other_by_pairs_only_are_no_groups() -> None:
    assert Groups.by_reach([[0], [1], [2]]) == (0, 1, 2)
    assert Groups.by_reach([[0, 1, 2], [0, 1, 2], [1, 2]]) == (0, 1, 2)  # 2 does not reach 0, and 1 reaches both
    assert Groups.by_reach([[0, 1, 2], [1], [0, 2]]) == (0, 1, 0)


def test_gateways_meet_in_turns_that_cannot_wait_for_each_other() -> None:
    for of in ((0, 0, 0, 1, 2, 2), (0, 1, 2, 3, 3), (0, 0, 1, 1, 2, 2, 3, 3, 4)):
        groups = Groups(of, "tcp")
        left = {rank: groups.partners(rank) for rank in range(len(of))}
        assert sorted((of[rank], other) for rank, others in left.items() for other in others) == [
            (a, b) for a in range(groups.count) for b in range(groups.count) if a != b
        ]
        while any(left.values()):  # some pair is first on both sides
            firsts = {(of[rank], others[0]): rank for rank, others in left.items() if others}
            met = [pair for pair in firsts if pair[::-1] in firsts]
            assert met
            for pair in met:
                left[firsts[pair]].pop(0)


@pytest.mark.parametrize("listed", ["0,0,1", "0,0,2,1", "1,1,0,0", "0,0,x,1", ""])
def test_groups_that_are_none_are_refused(listed: str) -> None:
    with pytest.raises(InvalidOption, match="a group for each of 4 workers|has no groups"):
        check_exchange(f"peer+tcp:{listed}", 4)
    with pytest.raises(InvalidOption, match="has no groups; write them after peer"):
        check_exchange("tcp:0,0,1,1", 4)


def test_peer_by_name_is_refused_with_the_reason() -> None:
    assert choose_exchange("peer", "cpu", TWO, found()) == "peer"
    with pytest.raises(DeviceError, match="cannot map each other's memory: no space; it is for workers of one host"):
        choose_exchange("peer", "cpu", TWO, found(), Apart("no space", (0, 1)))


def test_ucx_by_name_is_refused_where_a_worker_has_no_ucxx() -> None:
    assert choose_exchange("ucx", "cuda", TWO, found(), APART) == "ucx"
    with pytest.raises(DeviceError, match="no UCXX .*: tcp://b:1$"):
        choose_exchange("ucx", "cuda", TWO, found(ucx=False))


def test_a_retired_name_warns_and_an_unknown_one_is_refused() -> None:
    with pytest.warns(FutureWarning, match='Write exchange="auto": the next release refuses "nccl"'):
        check_exchange("nccl", 2)
    with pytest.raises(InvalidOption, match=r"'mpi' is none of 'auto', 'loopback', 'peer', 'peer\+tcp', .*, 'ucx'$"):
        check_exchange("mpi", 2)


def test_more_workers_than_can_meet_are_refused() -> None:
    assert constants("kernels/world_common.cuh")["most_ranks"] == MOST_WORKERS
    check_exchange("auto", MOST_WORKERS)
    with pytest.raises(InvalidOption, match="^65 workers were given for a graph; at most 64 can hold one$"):
        check_exchange("auto", 65)


def test_on_a_cluster_with_tls_auto_is_encrypted_and_others_warn() -> None:
    workers = ["tls://a:1", "tls://b:1"]
    assert choose_exchange("auto", "cuda", workers, found(), APART) == "tcp"
    assert choose_exchange("auto", "cuda", workers, found()) == "peer"  # nothing leaves the host
    assert choose_exchange("auto", "cuda", workers[:1], found()[:1]) == "loopback"
    with pytest.warns(UserWarning, match="unencrypted .* listens on every interface"):
        assert choose_exchange("ucx", "cuda", workers, found()) == "ucx"
