"""Two hosts of one machine, by namespaces: each has a network, an IPC and a mount namespace with a /dev/shm of its own.

``python two_hosts.py SCENARIO FOLDER`` runs a scenario on a cluster of workers on both. It is the first host itself, in
namespaces that it makes, and starts the second one, to which a pair of virtual interfaces leads.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from cluster_processes import ROOT, environment, wait_until
from distributed import Client
from distributed.security import Security
from patience import patience
from slurm import slurm

from mgraph import DynamicGraph
from mgraph.errors import WorkerLost
from workloads.scaling.algorithms import first_column

NAMESPACES = ("--net", "--mount", "--ipc")
FIRST, SECOND, INTERFACE = "10.213.7.1", "10.213.7.2", "between"


def missing() -> str:
    """Why namespaces cannot be made here, or ""."""
    if any(shutil.which(program) is None for program in ("unshare", "nsenter", "ip", "mount")):
        return "needs unshare, nsenter, ip and mount"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else ""


def run_scenario(name: str, folder: Path, limit: float = 120) -> None:
    """Run a scenario in a process of its own; raises with what it printed if it fails."""
    command = ["unshare", *NAMESPACES, "--propagation", "private", sys.executable, __file__, name, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=patience(limit))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    log = folder / "cluster.log"
    assert process.returncode == 0, f"{said}\n{log.read_text() if log.exists() else ''}"
    print(said)


# ---- in the namespaces of the first host -----------------------------------------------------------------------------


class Hosts(NamedTuple):
    """A cluster on both hosts, and the workers of the second one."""

    client: Client
    away: list[subprocess.Popen[bytes]]


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


@contextmanager
def second_host() -> Iterator[int]:
    """A process whose namespaces are the second host, with a network between both."""
    process = subprocess.Popen(["unshare", *NAMESPACES, "--propagation", "private", "sleep", "600"])
    try:
        own = os.readlink("/proc/self/ns/net")
        assert wait_until(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own, 20)
        subprocess.run(["ip", "link", "delete", INTERFACE], capture_output=True)  # of an earlier second host
        pair = ["type", "veth", "peer", "name", INTERFACE, "netns", str(process.pid)]
        _call("ip", "link", "add", INTERFACE, *pair)
        _call(*on(process.pid, "mount", "-t", "tmpfs", "none", "/dev/shm"))
        for prefix, address in ([], FIRST), (on(process.pid), SECOND):
            _call(*prefix, "ip", "link", "set", "lo", "up")
            _call(*prefix, "ip", "address", "add", f"{address}/24", "dev", INTERFACE)
            _call(*prefix, "ip", "link", "set", INTERFACE, "up")
        yield process.pid
    finally:
        process.kill()
        process.wait(10)


def on(host: int, *command: str) -> list[str]:
    """A command in the namespaces of a process."""
    return ["nsenter", f"--target={host}", *NAMESPACES, *command]


def _certificate(folder: Path) -> dict[str, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mgraph"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return {"ca-file": cert, "cert": cert, "key": key}


@contextmanager
def two_hosts(folder: Path, first: int = 2, second: int = 2, encrypted: bool = False) -> Iterator[Hosts]:
    """A scheduler on the first host, and workers on both."""
    # The options of all processes.
    file, security = folder / "scheduler.json", None
    file.unlink(missing_ok=True)
    place = ["--scheduler-file", str(file), "--protocol", "tls" if encrypted else "tcp"]
    if encrypted:
        files = _certificate(folder)
        place += [word for name, path in files.items() for word in (f"--tls-{name}", str(path))]
        cert, key = str(files["cert"]), str(files["key"])
        security = Security(tls_ca_file=cert, tls_client_cert=cert, tls_client_key=key, require_encryption=True)

    with second_host() as host, (folder / "cluster.log").open("ab") as log, ExitStack() as stack:

        def start(*arguments: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
            command = [*prefix, sys.executable, "-m", "dask", *arguments, *place]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), cwd=folder)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            return process

        # The cluster.
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        start("scheduler", "--host", FIRST, "--port", "0", *quiet)
        options = ["--nthreads", "1", "--no-nanny", *quiet]
        for _ in range(first):
            start("worker", "--host", FIRST, *options)
        away = [start("worker", "--host", SECOND, *options, prefix=on(host)) for _ in range(second)]
        assert wait_until(file.exists, 60)
        client = Client(scheduler_file=str(file), security=security, timeout=patience(60))
        stack.callback(_close, client)
        client.wait_for_workers(first + second, timeout=patience(60))
        yield Hosts(client, away)


def _close(client: Client) -> None:
    with suppress(RuntimeError):  # Dask's, where its own reconnection gives up at the same moment
        client.close(8)


def _edges(seed: int, n: int, m: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n, (2, m)).astype(np.uint32)


Call = Callable[[DynamicGraph], Any]

SOME: dict[str, Call] = {
    "bfs": lambda g: g.bfs(0, predecessors=True),
    "components": lambda g: g.connected_components(),
    "pagerank": lambda g: g.pagerank(),
}
OTHERS: dict[str, Call] = {
    "sssp": lambda g: g.sssp(0),
    "cores": lambda g: g.core_number(),
    "labels": lambda g: g.label_propagation(),
    "distances": lambda g: g.distances([0, 1, 2]),
    "betweenness": lambda g: g.betweenness_centrality([0, 7]),
    "triangles": lambda g: g.triangles(),
    "louvain": lambda g: g.louvain(),
    "clustering": lambda g: g.clustering(),
    "hits": lambda g: g.hits(),
    "k-hop": lambda g: g.k_hop([3, 5], 2),
    "strong components": lambda g: g.strongly_connected_components(),
    "walks": lambda g: g.random_walks(np.arange(100), 5, seed=1),
}


def compare(hosts: Hosts, exchange: str, calls: dict[str, Call]) -> None:
    """Batches, calls and maintained results give what a graph in this process gives."""
    n, rng = 300, np.random.default_rng(3)
    edges, more, weights = _edges(1, n, 1500), _edges(2, n, 500), rng.random(1500, np.float32)
    kind = {"n_vertices": n, "directed": False, "weighted": True}
    with DynamicGraph(hosts.client, **kind) as graph, DynamicGraph(**kind) as oracle:
        assert graph.exchange == exchange, graph.exchange
        live = graph.maintain("connected_components")
        for g in (graph, oracle):
            g.insert(*edges, weights)
            g.insert(*more, np.full(500, 0.5, np.float32))
            g.delete(*edges[:, :600])
        for name, call in calls.items():
            ours, theirs = (first_column(call(g)) for g in (graph, oracle))
            assert np.allclose(ours, theirs, rtol=1e-5, equal_nan=True), name
        assert np.array_equal(live.result().to_numpy(), oracle.connected_components().to_numpy())
        graph.rebalance()
        assert graph.num_edges == oracle.num_edges


def two_and_two(folder: Path) -> None:
    """Two hosts of two workers."""
    with two_hosts(folder) as hosts:
        compare(hosts, "peer+tcp:0,0,1,1", SOME)


def three_and_one(folder: Path) -> None:
    """Three workers of a host and one of another, encrypted; all families of algorithms."""
    with two_hosts(folder, 3, 1, encrypted=True) as hosts:
        compare(hosts, "peer+tcp:0,0,0,1", SOME | OTHERS)


def lost_host(folder: Path) -> None:
    """A host that falls silent, and one whose connections close."""
    for silent in (False, True):
        within = 6.0 if silent else 2.0
        with two_hosts(folder) as hosts, DynamicGraph(hosts.client, 1 << 16, patience=3.0) as graph:
            graph.insert(*_edges(4, 1 << 16, 1 << 18))
            graph.pagerank()
            if silent:
                _call("ip", "link", "set", INTERFACE, "down")
            else:
                for process in hosts.away:
                    process.kill()
            began = time.monotonic()
            try:
                while time.monotonic() < began + patience(30):
                    graph.pagerank()
                raise AssertionError("nobody noticed")
            except WorkerLost as error:
                took = time.monotonic() - began
                print(f"{'silent' if silent else 'closed'}: {took:.2f} s, {error}")
                assert took < patience(within), took


def batch_job(folder: Path) -> None:
    """A job of two workers on each of two nodes, under Slurm."""
    with second_host() as host, slurm(folder, (FIRST, SECOND), INTERFACE, on(host)) as nodes:
        small = ("cluster/slurm/job.py", "--scale", "10", "--batch", "2000", "--batches", "2")
        job = nodes.submit("several-nodes.sbatch", sys.executable, *small, gpus=2)
        assert job.ended(90) == ("COMPLETED", "0:0"), job.text()
        for part in ("epoch 2: ", "<pagerank: 1024 ", "exchange peer+tcp:0,0,1,1"):
            assert part in job.text(), job.text()
        job.assert_gone()


SCENARIOS = {scenario.__name__: scenario for scenario in (two_and_two, three_and_one, lost_host, batch_job)}

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    status = 1
    try:
        _call("mount", "-t", "tmpfs", "none", "/dev/shm")
        SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)  # no thread of Dask's is waited for
