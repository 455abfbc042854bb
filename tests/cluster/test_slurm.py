"""The batch scripts, run by bash on CPU workers. A short script stands for Slurm's srun; test_slurm_real has it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_processes import ROOT, environment, wait_until
from patience import patience

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

SRUN = """#!/usr/bin/env bash
echo "$@" >>"$SRUN_LOG"
nodes=0
while [[ $1 == --* ]]; do case $1 in --nodes=*) nodes=${1#*=};; esac; shift; done
set -m  # each task is a process group
for ((node = 0; node < nodes; node++)); do "$@" & done
groups=$(jobs -p | sed 's/^/-/')
trap 'kill -USR1 -- $groups' USR1  # as the real one does: handed on to every process,
trap 'kill -KILL -- $groups' TERM  # and not this one
while [[ $(jobs -r) ]]; do wait; done
"""
SRUN_OF_NO_NODE = '#!/bin/sh\necho "$@" >>"$SRUN_LOG"\nexit 1\n'
PYTHON = sys.executable


@pytest.fixture
def job(tmp_path):
    """Starts a batch script with a command, in a session of its own; ends all that is left of it."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    started = []

    def start(script: str, *command: str, nodes: int = 1, **settings: str) -> subprocess.Popen[str]:
        slurm = {"SLURM_JOB_ID": "17", "SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_NUM_NODES": str(nodes)}
        mgraph = {"DEVICE": "cpu", "PER_NODE": "2", "INTERFACE": "lo", "RUN_DIR": str(tmp_path), "PYTHON": PYTHON}
        mgraph |= {"DASHBOARD": "127.0.0.1:0", "START_SECONDS": "30"}
        mgraph |= {"WORKER_OPTIONS": f"--local-directory {tmp_path}", **settings}
        process = subprocess.Popen(
            ["bash", str(ROOT / "cluster" / "slurm" / script), *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={
                **environment(), **slurm, **{f"MGRAPH_{name}": value for name, value in mgraph.items()},
                "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SRUN_LOG": str(tmp_path / "srun.log"),
            },
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        for pid in session_of(process):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=patience(10))


def session_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the job that run, its leader included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == process.pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def assert_gone(process: subprocess.Popen[str], folder: Path) -> None:
    assert wait_until(lambda: not session_of(process), 10), "processes outlived their job"
    assert not list(folder.glob("scheduler-*.json"))
    assert not list(folder.glob("dask-scratch-space/*/")), "workers were killed before they had closed"


@pytest.mark.parametrize(
    ("script", "nodes"), [pytest.param("one-node.sbatch", 1, marks=pytest.mark.slow), ("several-nodes.sbatch", 2)]
)
def test_a_job_runs_on_its_cluster_and_leaves_nothing(job, tmp_path, script, nodes):
    options = ["--scale", "10", "--batch", "2000", "--batches", "2"]
    command = f"{PYTHON} cluster/slurm/job.py {' '.join(options)} && echo $MGRAPH_WORKERS && exit 7"
    process = job(script, "bash", "-c", command, nodes=nodes, PER_NODE=str(2 // nodes))
    out, err = process.communicate(timeout=patience(60))
    assert process.returncode == 7, err  # that of the command
    assert out.splitlines()[-1] == "2"
    for part in ("epoch 2: ", "<bfs: 1024 int32 values at epoch 2", "<pagerank: 1024 ", "tcp://127.0.0.1:"):
        assert part in out
    assert out.count("tcp://127.0.0.1:") == 4  # both workers, named twice
    assert_gone(process, tmp_path)
    (srun,) = (tmp_path / "srun.log").read_text().splitlines()
    assert f"--nodes={nodes} --ntasks={nodes} --ntasks-per-node=1" in srun


def test_a_job_at_its_time_limit_closes_everything(job, tmp_path):
    process = job("launch.sh", PYTHON, "-c", "import time; print('busy', flush=True); time.sleep(60)", PER_NODE="1")
    assert process.stdout.readline().startswith("tcp://")
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGTERM)  # what --signal=B:TERM@60 has Slurm send: to the script alone
    assert process.wait(patience(40)) == 143
    assert_gone(process, tmp_path)


def test_mistakes_end_before_anything_starts(job, tmp_path):
    process = job("launch.sh")
    assert "usage" in process.communicate(timeout=patience(20))[1]
    assert process.returncode == 2
    process = job("launch.sh", "true", DEVICE="tpu")
    assert "MGRAPH_DEVICE is tpu" in process.communicate(timeout=patience(40))[1]
    assert process.returncode == 2
    assert_gone(process, tmp_path)


def test_gpu_workers_are_dask_cudas(job, tmp_path):
    """By the command that a GPU node would run, as srun was given it."""
    (tmp_path / "srun").write_text(SRUN_OF_NO_NODE)
    process, log = job("launch.sh", "echo", "never", DEVICE="gpu", PER_NODE="4"), tmp_path / "srun.log"
    assert wait_until(log.exists, 30)
    assert wait_until(lambda: log.read_text().endswith("\n"), 10)
    words = log.read_text().split()
    at = words.index("dask")
    assert words[at - 2 : at + 3] == [PYTHON, "-m", "dask", "cuda", "worker"]
    assert words[words.index("--device-memory-limit") + 1] == "0"
    assert words[words.index("--interface") + 1] == "lo"
    assert "--scheduler-file" in words
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience(40)) == 143
    assert_gone(process, tmp_path)


@pytest.mark.slow
def test_a_job_ends_where_its_workers_do_not_come(job, tmp_path):
    (tmp_path / "srun").write_text(SRUN_OF_NO_NODE)
    # Its scheduler must be up within these seconds: the message differs where it is not.
    process = job("launch.sh", "echo", "never", DEVICE="gpu", START_SECONDS=f"{patience(4):.0f}", PER_NODE="4")
    out, err = process.communicate(timeout=patience(60))
    assert "0 of 4 workers joined" in err
    assert "never" not in out
    assert_gone(process, tmp_path)
    assert process.returncode == 2
