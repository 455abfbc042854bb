"""The exchange through mapped memory: what it leaves behind, and when it cannot be used."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from exchange_ranks import LIMIT, ranks, run_threads
from graph_clusters import NO_DASHBOARD
from patience import patience

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.exchange import Exchange, segment
from mgraph.exchange.peer import LOOK_NANOSECONDS, PeerExchange, reach
from mgraph.exchange.segment import Place, Segment

CPU = Device("cpu", threads=1)


def named(exchanges: list[Exchange]) -> int:
    """How many of the exchanges' segments have a name."""
    return sum(os.path.exists(Place.decode(exchange.address).path) for exchange in exchanges)


def maps() -> int:
    """How many segments this process has mapped."""
    return Path("/proc/self/maps").read_text().count("/mgraph-")


def test_a_name_that_a_killed_process_left_is_removed_and_no_other():
    make = (
        "import os, signal; from mgraph.exchange.segment import Segment; kept = Segment.create(8192, {});"
        "print(kept[1].path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    left, fresh = (
        Path(
            subprocess.run(
                [sys.executable, "-c", make], capture_output=True, text=True, timeout=patience(60)
            ).stdout.strip()
        )
        for _ in range(2)
    )
    alive, place = Segment.create(8192, {})
    for path in (left, place.path):
        os.utime(path, (0, 0))
    _, other = Segment.create(8192, {})
    try:
        assert [path.exists() for path in (left, fresh, Path(place.path))] == [False, True, True]
    finally:
        for path in (fresh, place.path, other.path):
            os.unlink(path)
        del alive


def test_names_end_when_all_have_mapped_and_memory_ends_with_close() -> None:
    mapped = maps()
    with ranks("peer", 3, [lambda: False] * 3) as made, ThreadPoolExecutor(3) as pool:
        addresses = [exchange.address for exchange in made]
        assert named(made) == 3
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        assert named(made) == 0  # so that nothing is left, whoever is killed from here on
        assert maps() - mapped == 9
    assert maps() == mapped
    with ranks("peer", 2, [lambda: False] * 2) as made:
        assert named(made) == 2
    assert named(made) == 0


def test_large_parts_and_a_rank_that_is_late() -> None:
    """Parts of many messages, in both directions at once: no rank waits until the other has read everything."""

    def program(exchange: Exchange) -> None:
        mine = np.arange(5_000_000, dtype=np.uint64) + exchange.rank
        for other, part in enumerate(exchange.allgather(mine)):
            np.testing.assert_array_equal(part, np.arange(5_000_000, dtype=np.uint64) + other)
        lengths = [3_000_000 if exchange.rank == 0 else 0, 7]
        got = exchange.alltoallv([np.full(n, exchange.rank, np.uint8) for n in lengths])
        assert [len(part) for part in got] == ([3_000_000, 0] if exchange.rank == 0 else [7, 7])
        for i in range(6):  # the other rank returns to look for an abort meanwhile
            if exchange.rank == i % 2:
                time.sleep(2.5e-9 * LOOK_NANOSECONDS)
            assert exchange.least(i + exchange.rank) == i
        assert exchange.allreduce(np.arange(2)).tolist() == [0, 2]

    run_threads("peer", 2, program)


def test_missing_shared_memory_is_reported(monkeypatch, tmp_path) -> None:
    unlink = os.unlink

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    removed: list[str] = []
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(segment.os, "unlink", lambda path: (removed.append(path), unlink(path))[1])
    with pytest.raises(DeviceError, match=r"bytes of shared memory cannot be had in /dev/shm: No space left"):
        PeerExchange(0, 2, lambda: False, CPU)
    assert len(removed) == 1
    assert not os.path.exists(removed[0])
    monkeypatch.undo()
    monkeypatch.setattr(segment, "FOLDER", str(tmp_path / "missing"))
    with pytest.raises(DeviceError, match="missing: No such file"):
        PeerExchange(0, 2, lambda: False, CPU)


def test_memory_that_is_not_there_or_another_is_not_mapped() -> None:
    own, place = Segment.create(8192, {"pid": 1})
    try:
        mapped = Segment.open(place)
        mapped.data[4000] = 7
        assert own.data[4000] == 7
        assert reach([place.encode()] * 2, 0, CPU) == ([0, 1], "")
        wrong = Place(place.path, "00" * 16, 8192, {})
        assert "is not the segment that its rank made" in reach([wrong.encode()] * 2, 0, CPU)[1]
        gone = Place(f"{place.path}-gone", place.token, 8192, {})
        assert "gone cannot be mapped: No such file" in reach([gone.encode()] * 2, 1, CPU)[1]
        short = Place(place.path, place.token, 1 << 20, {})
        assert "is not the segment" in reach([short.encode()] * 2, 1, CPU)[1]
        if os.geteuid():  # root may open everything
            os.chmod(place.path, 0)
            assert "Permission denied" in reach([place.encode()] * 2, 0, CPU)[1]
    finally:
        Segment.unlink(place)
    Segment.unlink(place)  # nothing to do


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_workers_of_one_host_get_it_and_others_the_next_best(client, monkeypatch, caplog) -> None:
    with DynamicGraph(client, 4, device="cpu") as graph:
        assert graph.exchange == "peer"
        graph.insert([0, 3, 1], [3, 1, 2])
        assert graph.bfs(0).to_numpy().tolist() == [0, 2, 3, 1]
    monkeypatch.setattr("mgraph.worker.calls.creation.reach", lambda _, rank, __: ([rank], "another host"))
    with caplog.at_level(logging.INFO, "mgraph"), DynamicGraph(client, 4, device="cpu") as graph:
        assert graph.exchange == "tcp"
    assert "cannot map each other's memory (rank 0: another host)" in caplog.text
    with pytest.raises(DeviceError, match='"peer" was asked for .* rank 0: another host'):
        DynamicGraph(client, 4, device="cpu", exchange="peer")
