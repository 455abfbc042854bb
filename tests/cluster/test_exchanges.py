"""What the probe says of the exchanges between two workers, and that a graph gets what it says."""

from __future__ import annotations

import json
import logging
import os
import re

import dask
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, assert_clean

from cluster.__main__ import main
from cluster.exchanges import PROGRAM, compare, open_ranks, time_calls
from cluster.probe import _exchange_lines, as_text, probe
from mgraph import DynamicGraph
from mgraph.algorithms import ALGORITHMS
from mgraph.client.connections.opening import OPTION
from mgraph.device import gpu_count
from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange import segment

BULK = 1 << 20


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_every_exchange_is_timed_or_has_a_reason(client) -> None:
    found = compare(client, "cpu", BULK)
    assert (found["ranks"], found["device"], found["auto"]) == (2, "cpu", "peer")
    assert found["why"] == "the workers map each other's memory"
    by_name = {one["exchange"]: one for one in found["exchanges"]}
    assert list(by_name) == ["peer", "tcp", "ucx"]
    for name in ("peer", "tcp"):
        assert by_name[name]["bulk_bytes"] == BULK
        assert min(by_name[name]["allreduce_s"], by_name[name]["bulk_s"]) > 0
    assert ("no UCXX" in by_name["ucx"].get("why", "")) != ("bulk_s" in by_name["ucx"])
    assert PROGRAM not in ALGORITHMS, "these workers are threads of this process, whose graphs would know it"
    assert_clean(client)


@pytest.mark.parametrize(
    ("channels", "way"),
    [(True, "channels from thread to thread"), (False, "the comms, because mgraph.channels is False")],
)
def test_the_way_of_calls_and_the_reason_are_printed(client, channels, way) -> None:
    with dask.config.set({OPTION: channels}), open_ranks(client) as ranks:
        found = time_calls(ranks)
    *_, line = _exchange_lines({"ranks": 2, "auto": "peer", "why": "..", "exchanges": [], **found})
    assert re.fullmatch(rf"an empty call takes \d+ us; calls go by {way}", line)


def full(*_: int) -> None:
    raise OSError(28, os.strerror(28))


def other_users(path: str, *_: int, **__: int) -> int:
    if str(path).startswith(f"{segment.FOLDER}/mgraph-") and os.path.exists(path):
        raise OSError(13, os.strerror(13))
    return OPEN(path, *_, **__)


def other_containers(path: str, flags: int, *_: int, **__: int) -> int:
    if str(path).startswith(f"{segment.FOLDER}/mgraph-") and not flags & os.O_CREAT:
        raise OSError(2, os.strerror(2))
    return OPEN(path, flags, *_, **__)


OPEN = os.open
CAUSES = {
    "a /dev/shm that is full": ("posix_fallocate", full, "cannot be had in /dev/shm: No space left on device"),
    "another user": ("open", other_users, "Permission denied; its creator is another user"),
    "a container": ("open", other_containers, "No such file or directory; its creator is on another host, or in a"),
}


@pytest.mark.parametrize(
    "cause", [pytest.param(cause, marks=pytest.mark.slow if cause == "a container" else ()) for cause in CAUSES]
)
def test_without_mapped_memory_the_probe_the_log_and_the_graph_agree(client, cause, monkeypatch, caplog) -> None:
    name, instead, says = CAUSES[cause]
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "mgraph"):
        patched.setattr(os, name, instead)
        found = compare(client, "cpu", BULK)
        with DynamicGraph(client, 4, device="cpu") as graph:
            graph.insert([0, 3, 1], [3, 1, 2])
            assert graph.exchange == found["auto"] == "tcp"
            assert graph.bfs(0).to_numpy().tolist() == [0, 2, 3, 1]
    assert says in found["why"]
    peer, tcp, *_ = found["exchanges"]
    assert says in peer["why"]
    assert tcp["bulk_s"] > 0
    (line,) = [record for record in caplog.records if record.name == "mgraph.client.creation.placement"]
    assert line.levelno == logging.WARNING  # the workers have one host
    assert "exchange tcp, because the workers cannot map each other's memory (rank 0: " in line.getMessage()
    assert says in line.getMessage()


@pytest.mark.skipif(gpu_count() > 0, reason="for machines without a GPU")
def test_a_gpu_that_is_asked_for_is_looked_for(client) -> None:
    with pytest.raises(DeviceError, match="2 of 2 workers have no GPU"):
        compare(client, "gpu")
    with pytest.raises(InvalidOption, match="'tpu' is none of auto, cpu, gpu"):
        compare(client, "tpu")


def test_a_graph_by_a_retired_name_gets_what_auto_gets(client) -> None:
    with pytest.warns(FutureWarning, match='exchange "nccl" any more') as warned:
        graph = DynamicGraph(client, 4, device="cpu", exchange="nccl")
    assert [warning.filename for warning in warned] == [__file__]
    with graph:
        assert graph.exchange == "peer"


def test_a_failing_rank_is_reported_and_the_others_are_timed(client, monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise DeviceError("the space is gone now")

    monkeypatch.setattr("mgraph.exchange.factory.PeerExchange", fails)
    found = compare(client, "cpu", BULK)
    assert found["exchanges"][0] == {"exchange": "peer", "why": "the space is gone now"}
    assert found["exchanges"][1]["bulk_s"] > 0
    assert_clean(client)


@pytest.mark.slow
def test_the_command_starts_two_workers_and_prints_the_table(capsys) -> None:
    assert main(["probe", "--workers", "2", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["exchange"]["auto"] == found["choice"]["exchange"] == "peer"
    peer, tcp = found["exchange"]["exchanges"][:2]
    assert peer["bulk_bytes"] == tcp["bulk_bytes"] == 64 << 20
    lines = as_text(found).splitlines()
    at = lines.index("exchange")
    assert lines[at + 1] == "  auto, between 2 workers: peer, because the workers map each other's memory"
    assert re.fullmatch(r"  an empty call takes \d+ us; calls go by channels from thread to thread", lines[at + 2])
    assert lines[at + 3].split() == ["allreduce", "64.00", "MiB", "each", "rank", "sends"]
    assert lines[at + 4].split()[::2] == ["peer", "us", "ms", "GB/s"]
    assert lines[at + 6].startswith("  ucx       ")


@pytest.mark.slow
def test_one_worker_has_nothing_to_time(capsys) -> None:
    calls = {"call_s": 8e-4, "calls_by_comm": "it is far"}
    found = {
        **probe(1, "cpu"),
        "exchange": {"ranks": 1, "auto": "loopback", "why": "reasons", **calls, "exchanges": []},
    }
    assert as_text(found).endswith(
        "exchange\n  auto, between 1 workers: loopback, because reasons\n"
        "  an empty call takes 800 us; calls go by the comms, because it is far"
    )
    assert main(["probe", "--workers", "1", "--device", "cpu", "--no-exchange"]) == 0
    assert "allreduce" not in capsys.readouterr().out
