"""The programs that a wheel carries: those of the CPU, and what a GPU needs besides."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from mgraph.algorithms import ALGORITHMS
from mgraph.kernels import cuda, launch
from mgraph.kernels.source import Program
from workloads import wheel
from workloads.__main__ import main


@pytest.fixture
def nothing_loaded(monkeypatch) -> None:
    monkeypatch.setattr(launch, "_libraries", {})


def named(programs: list[Program]) -> set[tuple[str, str | None]]:
    return {(program.name, program.view) for program in programs}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gpu_needs_more_programs_than_a_cpu(nothing_loaded):
    on_cpus, on_gpus = (named(programs) for programs in wheel.programs(["gpma+"]))
    more = {(file, None) for file in ("structures/sums.cuh", "kernels/sample_sort.cuh")}
    more.add(("algorithms/primitives/compact_csr.cuh", "PmaView"))
    hosts = {(file, None) for file in wheel.HOSTS_ALONE}
    assert on_cpus >= hosts
    assert on_gpus >= on_cpus - hosts | more
    assert not on_cpus & more
    assert not on_gpus & hosts


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_default_structure_loads_nothing_else_on_a_gpu(nothing_loaded, monkeypatch):
    _, carried = wheel.programs(["gpma+"])
    loaded, compile_cuda = list[Program](), launch.compile_cuda

    def noted(program: Program, device: object) -> object:
        loaded.append(program)
        return compile_cuda(program, device)

    monkeypatch.setattr(launch, "compile_cuda", noted)
    with patch.dict(ALGORITHMS, {wheel.EVERY.name: wheel.EVERY}):
        for graph in wheel._graphs(["gpma+"], "cuda"):
            with graph:
                graph.run(wheel.EVERY.name)
    assert loaded
    assert named([program for program in loaded if program not in carried]) == set()


def test_an_architecture_that_nvcc_does_not_know_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(cuda, "supported_gpus", lambda: ["sm_90", "sm_80"])
    assert main(["wheel", "--gpus", "sm_80", "sm_120"]) == 2
    assert "--gpus names sm_120; nvcc compiles here for sm_90, sm_80" in capsys.readouterr().err
