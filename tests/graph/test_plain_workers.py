"""Workers that have mgraph installed and no checkout, and workers behind TLS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, assert_clean
from graph_model import GraphModel, random_batch
from patience import patience

from mgraph import DynamicGraph, MgraphError

CHECKOUT = Path(__file__).parents[2]

WORKER = """
import os, sys
checkout, site = sys.argv.pop(1), sys.argv.pop(1)
sys.path = [site] + [p for p in sys.path if os.path.realpath(p or ".") != checkout]
from dask.__main__ import main
main()
"""


@contextmanager
def plain_workers(n: int, site: Path) -> Iterator[Client]:
    """A cluster of `dask worker` processes that find mgraph in the folder `site` only."""
    with LocalCluster(n_workers=0, **NO_DASHBOARD) as cluster, Client(cluster) as client:
        options = ["worker", cluster.scheduler_address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        command = [sys.executable, "-c", WORKER, str(CHECKOUT), str(site), *options]
        workers = [subprocess.Popen(command, cwd=site, stderr=subprocess.DEVNULL) for _ in range(n)]
        try:
            client.wait_for_workers(n, timeout=patience(30))
            yield client
            client.retire_workers(close_workers=True)
        finally:
            for worker in workers:  # retired ones end by themselves; a signal meanwhile can hang Dask's shutdown
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(10)
                worker.kill()
                worker.wait()


def what_it_finds() -> dict[str, Any]:
    import importlib.util

    names = ("mgraph", "cluster", "workloads", "graph_model")
    return {name: (spec := importlib.util.find_spec(name)) and spec.origin for name in names}


def test_workers_without_a_checkout(tmp_path):
    shutil.copytree(CHECKOUT / "mgraph", tmp_path / "mgraph")  # with its bytecode: compiling takes each worker seconds
    with plain_workers(2, tmp_path) as client:
        there = {"mgraph": str(tmp_path / "mgraph" / "__init__.py")}
        for names in client.run(by_value(what_it_finds)).values():
            assert names == {**there, "cluster": None, "workloads": None, "graph_model": None}
        rng = np.random.default_rng(2)
        with DynamicGraph(client, 30, directed=False) as graph:
            model = GraphModel(30, directed=False)
            for _ in range(3):
                batch = random_batch(rng, 30, 100, False)
                graph.update(batch)
                model.update(batch)
            np.testing.assert_array_equal(graph.to_csr().dst, model.csr()[1])


def by_value(function: Any) -> Any:
    """`function` such that it pickles with its code, for workers that cannot import its module."""
    import types

    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


@pytest.mark.slow
def test_workers_without_mgraph(tmp_path):
    with plain_workers(1, tmp_path) as client:
        with pytest.raises(MgraphError, match="No module named 'mgraph'"):
            DynamicGraph(client, 10)
        with pytest.raises(MgraphError, match="has no mgraph plugin"):  # the scheduler takes it for registered
            DynamicGraph(client, 10)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_sessions_and_exchange_behind_tls(tmp_path):
    from distributed.security import Security

    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=localhost"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    roles = {
        f"tls_{role}_{part}": path
        for role in ("client", "scheduler", "worker")
        for part, path in (("cert", cert), ("key", key))
    }
    security = Security(tls_ca_file=cert, require_encryption=True, **roles)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, **NO_DASHBOARD, security=security, protocol="tls://"
        ) as cluster,
        Client(cluster, security=security) as client,
    ):
        with DynamicGraph(client, 10) as graph:
            assert all(address.startswith("tls://") for address in graph.workers)
            assert graph.insert([1, 9], [9, 1]).inserted == 2
            assert graph.has_edges([9], [1]).all()
        assert_clean(client)
