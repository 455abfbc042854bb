"""Programs for GPUs in a wheel: the one for this GPU is loaded without NVRTC, and never one that is damaged."""

from __future__ import annotations

import lzma
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_kernels import FILL

from mgraph import DynamicGraph
from mgraph.errors import DeviceError
from mgraph.kernels import cuda, launch, libraries
from mgraph.kernels.source import Program, read_program

NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not here")


class PretendCupy:
    """CuPy's modules: `loaded` is what the driver was given, "NVRTC" for a text, and it refuses the code `unknown`."""

    def __init__(self, unknown: bytes = b"") -> None:
        self.loaded = list[bytes | str]()

        class Refused(RuntimeError):
            pass

        def load(cubin: bytes) -> None:
            if cubin == unknown:
                raise Refused
            self.loaded.append(cubin)

        def compiled(**_: Any) -> Any:
            self.loaded.append("NVRTC")
            return SimpleNamespace(module=None)

        compiler = SimpleNamespace(CompileException=Refused)
        driver = SimpleNamespace(CUDADriverError=Refused)
        self.cuda = SimpleNamespace(Module=lambda: SimpleNamespace(load=load), driver=driver, compiler=compiler)
        self.RawModule = compiled


@pytest.fixture
def program(write: Callable[[str], str]) -> Program:
    return read_program(write(FILL), "kernels/platform/cuda.cuh", (("VALUE", 7),), None)


@pytest.fixture
def wheel(program, tmp_path, monkeypatch) -> Callable[[str], Path]:
    """Put a program for an architecture into the wheel, and return its path; the code is the architecture's name."""
    monkeypatch.setattr(libraries, "CARRIED", tmp_path / "carried")

    def compiled(command: list[str], text: str, target: Path, pack: Callable[[bytes], bytes]) -> Path:
        (gpu,) = [word.removeprefix("-arch=") for word in command if word.startswith("-arch=")]
        target.parent.mkdir(parents=True)
        target.with_suffix(".partial").write_bytes(pack(gpu.encode()))
        libraries.seal(target.with_suffix(".partial"), target)
        return target

    monkeypatch.setattr(cuda, "compile_carried", compiled)
    return lambda gpu: cuda.carry(program, gpu, libraries.CARRIED)


def chosen(program: Program, capability: str, unknown: bytes = b"") -> bytes | str:
    """What is loaded on a GPU of this compute capability."""
    cupy = PretendCupy(unknown)
    cuda._module(program, cupy, capability)
    (loaded,) = cupy.loaded
    return loaded


@pytest.mark.parametrize(
    ("capability", "carried", "expected"),
    [
        ("90", ["sm_80", "sm_90", "sm_100"], b"sm_90"),
        ("89", ["sm_80", "sm_86", "sm_89"], b"sm_89"),
        ("89", ["sm_80", "sm_86"], b"sm_86"),  # the same major version, and the highest lower minor one
        ("86", ["sm_80", "sm_89"], b"sm_80"),
        ("80", ["sm_86", "sm_89"], "NVRTC"),
        ("103", ["sm_90", "sm_100", "sm_120"], b"sm_100"),
        ("121", ["sm_100", "sm_120"], b"sm_120"),
        ("110", ["sm_100", "sm_120"], "NVRTC"),
        ("75", ["sm_80"], "NVRTC"),
        ("90", [], "NVRTC"),
    ],
)
def test_the_program_for_the_gpu_is_chosen(program, wheel, capability, carried, expected):
    for gpu in carried:
        wheel(gpu)
    assert chosen(program, capability) == expected


def test_a_damaged_program_is_not_loaded(program, wheel):
    least, best = wheel("sm_80"), wheel("sm_86")
    whole = best.read_bytes()
    for damaged in (whole[:-1], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:], b"", lzma.compress(b"sm_86")):
        best.write_bytes(damaged)
        assert chosen(program, "86") == b"sm_80"
    least.unlink()
    assert chosen(program, "86") == "NVRTC"
    best.write_bytes(whole)
    assert chosen(program, "86") == b"sm_86"


def test_another_text_is_not_loaded(program, wheel, write):
    wheel("sm_90")
    for text, value in ((FILL, 8), (FILL.replace("= VALUE", "= VALUE + 0"), 7)):
        other = read_program(write(text, f"other_{value}"), "kernels/platform/cuda.cuh", (("VALUE", value),), None)
        assert chosen(other, "90") == "NVRTC"


def test_what_the_driver_refuses_is_compiled(program, wheel):
    wheel("sm_90")
    assert chosen(program, "90", unknown=b"sm_90") == "NVRTC"


def test_a_python_without_lzma_compiles(program, wheel, monkeypatch):
    wheel("sm_90")
    monkeypatch.setitem(sys.modules, "lzma", None)
    assert chosen(program, "90") == "NVRTC"


@NVCC
def test_nvcc_compiles_what_nvrtc_would(program, tmp_path):
    gpu = cuda.supported_gpus()[-1]
    target = cuda.carry(program, gpu, tmp_path)
    assert [file.name for file in target.parent.iterdir()] == [target.name]
    packed = libraries.content(target)
    assert packed is not None
    cubin = lzma.decompress(packed)
    assert cubin.startswith(b"\x7fELF")
    assert b"mgraph_Fill" in cubin


@NVCC
def test_what_nvcc_refuses_is_an_error(write, tmp_path):
    wrong = read_program(write(FILL), "kernels/platform/cuda.cuh", (("VALUE", "nonsense_value"),), None)
    with pytest.raises(DeviceError, match="(?s)nvcc -x cu .*nonsense_value"):
        cuda.carry(wrong, cuda.supported_gpus()[-1], tmp_path)
    assert not list(tmp_path.rglob("*.cubin"))


# ---- on a GPU --------------------------------------------------------------------------------------------------------


def paths(seed: int) -> np.ndarray:
    """The distances of a graph of a GPU."""
    with DynamicGraph(n_vertices=100, device="cuda") as graph:
        graph.insert(*np.random.default_rng(seed).integers(0, 100, (2, 300)))
        return graph.bfs(0).to_numpy()


@pytest.mark.gpu
@NVCC
@pytest.mark.timeout(300)
def test_a_graph_on_a_gpu_needs_no_nvrtc(tmp_path, monkeypatch):
    import cupy

    gpu = f"sm_{cupy.cuda.Device().compute_capability}"
    if gpu not in cuda.supported_gpus():
        pytest.skip(f"wheels carry nothing for {gpu}")
    # Note the programs of a graph, and compile them for a wheel.
    programs, module = list[Program](), cuda._module

    def noted(program: Program, *where: Any) -> Any:
        programs.append(program)
        return module(program, *where)

    def forget() -> None:
        monkeypatch.setattr(launch, "_libraries", {})
        cuda._compiled.cache_clear()

    forget()
    monkeypatch.setattr(cuda, "_module", noted)
    expected = paths(1)
    assert len(programs) > 5
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda program: cuda.carry(program, gpu, tmp_path), programs))

    # Make the graph again, without NVRTC.
    def refused(**_: Any) -> Any:
        raise AssertionError("NVRTC was called")

    forget()
    monkeypatch.setattr(libraries, "CARRIED", tmp_path)
    monkeypatch.setattr(cupy, "RawModule", refused)
    np.testing.assert_array_equal(paths(1), expected)
