"""The batch scripts under a real Slurm, started for them on this machine: two nodes, CPU workers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from slurm import Job, Slurm, missing, slurm

from cluster import connect

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing()), reason=f"no {', '.join(missing())} here; Debian: slurm-wlm and munge"),
    pytest.mark.timeout(240),
]

START = 90.0  #: seconds until a job computes; the first on a machine compiles the kernels
END = 25.0  #: seconds until it has ended after what ends it; less than the 30 after which Slurm kills it
SMALL = ("cluster/slurm/job.py", "--scale", "10", "--batch", "2000")
both_scripts = pytest.mark.parametrize(("script", "gpus"), [("one-node.sbatch", 2), ("several-nodes.sbatch", 1)])


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def cluster(running) -> Iterator[Slurm]:
    yield running
    running.end_jobs()


def busy(cluster: Slurm, script: str, gpus: int) -> Job:
    """A job with two workers that changes its graph, and would for hours."""
    job = cluster.submit(script, sys.executable, *SMALL, "--batches", "1000000", gpus=gpus)
    assert job.says("epoch 1: ", START), job.text()
    return job


@both_scripts
def test_a_job_is_done(cluster, script, gpus):
    job = cluster.submit(script, sys.executable, *SMALL, "--batches", "2", gpus=gpus)
    assert job.ended(START + END) == ("COMPLETED", "0:0"), job.text()
    for part in ("epoch 2: ", "<bfs: 1024 int32 values at epoch 2", "<pagerank: 1024 ", "exchange peer"):
        assert part in job.text()
    assert job.facts()["NumNodes"] == str(2 // gpus)
    job.assert_gone()


@both_scripts
def test_a_job_has_the_status_of_its_command(cluster, script, gpus):
    code = "import os; print('workers:', os.environ['MGRAPH_WORKERS']); raise SystemExit(7)"
    job = cluster.submit(script, sys.executable, "-c", code, gpus=gpus)
    assert job.ended(START + END) == ("FAILED", "7:0"), job.text()
    assert "workers: 2\n" in job.text()
    job.assert_gone()


@both_scripts
def test_a_cancelled_job_closes_everything(cluster, script, gpus):
    job = busy(cluster, script, gpus)
    job.cancel()
    state, _ = job.ended(END)
    assert state == "CANCELLED", job.text()
    job.assert_gone(closed=False)  # srun has the workers killed while they close


def test_a_job_at_its_time_limit_closes_everything(cluster):
    job = busy(cluster, "several-nodes.sbatch", 1)
    job.cancel("--batch", "--signal=TERM")  # what --signal=B:TERM@60 has Slurm send: to the script alone
    assert job.ended(END) == ("FAILED", "143:0"), job.text()
    job.assert_gone()


@both_scripts
def test_a_job_whose_worker_is_killed_fails(cluster, script, gpus):
    job = busy(cluster, script, gpus)
    with connect(job.scheduler_file(), workers=2) as client:
        nodes = client.run(os.getenv, "SLURMD_NODENAME")
        assert set(nodes.values()) == set(("one", "two")[: 2 // gpus])
        victim = max(nodes, key=nodes.__getitem__)
        (pid,) = client.run(os.getpid, workers=[victim]).values()
    os.kill(pid, signal.SIGKILL)
    assert job.ended(END) == ("FAILED", "1:0"), job.text()
    told = [line for line in job.text().splitlines() if "WorkerLost: " in line]
    assert told and victim in told[-1], job.text()
    job.assert_gone()
