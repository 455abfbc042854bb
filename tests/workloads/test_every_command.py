"""Every command that takes a device or workers runs once, at a tiny size, on two GPUs and on CPUs.

Those with workers run on CPUs on request.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster import __main__ as cluster
from workloads import __main__ as workloads
from workloads.bench.command import BENCHMARKS

GRAPH = "--scale 9 --edge-factor 8"
TWO = "--workers 2"
#: each command with options for a run of seconds; FOLDER is a new one
RUNS = {
    "demo": f"{TWO} --data FOLDER/small.npz --batch 2",
    "gap": "--scale 7 --degree 4 --trials 1",
    "graphalytics": "--scale 7 --repeats 1",
    "longrun": f"{TWO} {GRAPH} --batch 500 --batches 2 --every 1",
    "paper lpma": "--structure lpma --experiment loading --divide 100000 --repeats 1",
    "scaling": f"{TWO} {GRAPH} --batch 200 --batches 2 --roots 1 --scaling strong --measure updates",
    "stream": f"{TWO} --data rmat:7:8 --batch 300 --run bfs,pagerank --every 2",
    "bench updates": f"{GRAPH} --batches 50 --repeats 1 --builds 1",
    "bench execute": f"{GRAPH} --operations 2000 --rows 20 --repeats 1 --runs 60",
    "bench bfs": f"{GRAPH} --roots 1",
    "bench pagerank": f"{GRAPH} --iterations 2 --repeats 1",
    "bench sssp": f"{GRAPH} --roots 1",
    "bench algorithms": f"{GRAPH} --names components,cores --repeats 1",
    "bench communities": "--names rmat-10 --seeds 1",
    "bench live": f"{GRAPH} --names pagerank --kinds mixed --batches 5 --repeats 1",
    "bench copy": f"{TWO} {GRAPH} --batch 50 --batches 1 --sources 8 --repeats 1 --copies 1",
    "bench memory": f"{GRAPH} --batch 500 --growth 1.5",
    "bench calls": f"{TWO} --vertices 300 --edges 900 --rounds 1 --batches 90",
    "bench keys": "--keys 300 --batch 900 --batches 1",
    "bench store": f"{TWO} {GRAPH} --parts snapshot,open --path FOLDER --batch 500 --batches 1 --disk-bytes 100000",
    "bench handover": f"{TWO} --vertices 2000 --batch 3000 --batches 2 --repeats 1",
    "bench exchange": f"{TWO} --sizes 64 --repeats 2",
    "bench networkx": "--scales 6 --repeats 1",
    "probe": TWO,
}
NO_DEVICE = {"hosts", "notebooks", "report", "wheel", "wait"}  #: commands without workers or a device
NEEDS = {"bench communities": "igraph", "bench networkx": "networkx"}


def test_no_command_is_left_out() -> None:
    commands = {*workloads.COMMANDS, *cluster.COMMANDS} - {"bench"} - NO_DEVICE
    assert {name.split()[0] for name in RUNS} - {"bench"} == commands
    assert {name.removeprefix("bench ") for name in RUNS if name.startswith("bench ")} == {*BENCHMARKS}


ON_CPUS = [pytest.param(name, "cpu", marks=pytest.mark.slow if TWO in RUNS[name] else ()) for name in RUNS]
ON_GPUS = [pytest.param(name, "gpu", marks=pytest.mark.multigpu(2)) for name in RUNS]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("command", "device"), [*ON_CPUS, *ON_GPUS])
def test_runs_once(command: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if command in NEEDS:
        module = pytest.importorskip(NEEDS[command])
        if command == "bench networkx" and "mgraph" not in module.config.backends:
            pytest.skip("NetworkX does not know mgraph's backend: the project is on PYTHONPATH, and not installed")
    np.savez(
        tmp_path / "small.npz", src=[1, 2, 1], dst=[0, 1, 0], t=[0, 1, 2], op=[1, 1, -1], names=["libc6", "a", "b"]
    )
    options = [*command.split(), *RUNS[command].replace("FOLDER", str(tmp_path)).split(), "--device", device]
    main = cluster.main if command == "probe" else workloads.main
    assert main(options) == 0, capsys.readouterr().err
