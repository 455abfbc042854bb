"""Starting and closing a cluster, and what it refuses."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
from distributed import Client
from graph_clusters import workers_of
from interrupts import assert_quiet
from patience import patience

from cluster import Machine, start
from mgraph.device import gpu_count
from mgraph.errors import DeviceError, InvalidOption

ROOT = Path(__file__).parents[2]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_dead(pids, seconds=15.0):
    end = time.monotonic() + patience(seconds)
    while any(map(_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return [pid for pid in pids if _alive(pid)]


def test_starts_processes_and_closes_them():
    with start(workers=2, device="cpu", threads=1) as client:
        assert isinstance(client, Client)
        workers = workers_of(client).values()
        assert [worker["nthreads"] for worker in workers] == [1, 1]
        limits = [worker["memory_limit"] for worker in workers]
        assert limits[0] == limits[1] > 0
        pids = list(client.run(os.getpid).values())
        assert len(set(pids)) == 2
        assert os.getpid() not in pids
        cluster = client.cluster
    assert client.status == "closed"
    assert cluster.status.name == "closed"
    assert _wait_dead(pids) == []
    client.close()  # a second close is no error
    # A closed client is collected without a lock. That happens in any thread, such as one that holds the lock of Dask's
    # loops because it starts another cluster.
    collected = threading.Event()
    worker = threading.Thread(target=lambda: (client.__del__(), collected.set()), daemon=True)
    with cluster._loop_runner._lock:
        worker.start()
        assert collected.wait(10)
    worker.join(10)


def test_closes_when_the_block_raises():
    """Its worker has the memory limit and the threads that were asked for."""
    options = {"workers": 1, "device": "cpu", "threads": 2, "memory_limit": 2**30}
    with pytest.raises(ZeroDivisionError), start(**options) as client:
        (worker,) = workers_of(client).values()
        pids = list(client.run(os.getpid).values())
        raise ZeroDivisionError
    assert _wait_dead(pids) == []
    assert (worker["nthreads"], worker["memory_limit"]) == (2, 2**30)


def test_a_taken_dashboard_port_is_nothing_to_those_who_want_none():
    """Dask would warn that port 8787 is taken; warnings are errors here."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # taken by somebody else: the same to this test
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with start(workers=1, device="cpu") as client:
            assert client.cluster.scheduler.http_server.port != 8787


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": -2}, "workers is -2"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"workers": True}, "workers is True"),
        ({"workers": 1, "threads": 0}, "threads is 0"),
        ({"workers": 1, "memory_limit": -1}, "memory_limit is -1"),
        ({"workers": 1, "timeout": float("nan")}, "timeout is nan"),
        ({"workers": 1, "device": "tpu"}, "'tpu'"),
        ({"workers": 1, "timeout": 0}, "timeout is 0"),
        ({"workers": 1, "device": "cpu", "rmm_pool": "1GB"}, "rmm_pool"),
    ],
)
def test_refuses(options, named):
    with pytest.raises(InvalidOption, match=named):
        start(**options)


@pytest.mark.skipif(gpu_count() > 0, reason="this machine has a GPU")
def test_no_gpu_is_a_device_error():
    with pytest.raises(DeviceError, match="0 GPUs"):
        start(workers=1, device="gpu")


def test_gpu_workers_are_what_was_chosen(monkeypatch):
    """The call that reaches dask-cuda, on a machine with four GPUs."""
    calls = []

    class Refuses(Exception):
        pass

    def local_cuda_cluster(**options):
        calls.append((options, dask.config.get("distributed.worker.preload")))
        raise Refuses

    monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=local_cuda_cluster))
    machine = Machine(gpus=("4", "5", "6", "7"), cores=16, memory=2**34)
    monkeypatch.setattr(Machine, "here", lambda: machine)
    with pytest.raises(Refuses):
        start(gpus=[2, 0], rmm_pool="1GB", dashboard=":8787", timeout=7)
    ((options, preloads),) = calls
    assert any("SIG_IGN" in line for line in preloads)
    assert options == {
        "CUDA_VISIBLE_DEVICES": ["6", "4"],
        "n_workers": 2,
        "threads_per_worker": 1,
        "device_memory_limit": 0,
        "rmm_pool_size": "1GB",
        "protocol": "tcp",
        "dashboard_address": ":8787",
        "death_timeout": 7,
    }


def test_ctrl_c_stops_a_script_and_its_workers():
    script = textwrap.dedent("""
        import os, time
        from cluster import start
        if __name__ == "__main__":
            try:
                with start(workers=2, device="cpu") as client:
                    try:
                        print(*client.run(os.getpid).values(), flush=True)
                        time.sleep(60)
                    except KeyboardInterrupt:
                        time.sleep(1)  # workers that died of the signal would be gone by now
                        print(len(client.nthreads()), flush=True)
                        raise
            except KeyboardInterrupt:
                print("stopped", flush=True)
    """)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2, process.communicate(timeout=patience(20))
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        out, err = process.communicate(timeout=patience(40))
    finally:
        process.kill()
        process.wait(10)
    assert out.split() == ["2", "stopped"], (out, err)
    assert process.returncode == 0
    assert_quiet(err)
    assert _wait_dead(pids) == []


def test_ctrl_c_while_closing_takes_effect_after_it(monkeypatch):
    client = start(workers=1, device="cpu")
    pids = list(client.run(os.getpid).values())
    close = client.cluster.close

    def interrupted_close(*args, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return close(*args, **options)

    monkeypatch.setattr(client.cluster, "close", interrupted_close)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert signal.getsignal(signal.SIGINT) is before
    assert client.cluster.status.name == "closed"
    assert _wait_dead(pids) == []


@pytest.mark.gpu
def test_a_gpu_worker_each():
    with start(device="gpu") as client:
        visible = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        assert len({devices.split(",")[0] for devices in visible.values()}) == gpu_count()
