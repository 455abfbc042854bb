"""Compilation with NVRTC through CuPy, which caches programs by their text.

A wheel may carry programs compiled by nvcc for some architectures; these are loaded without NVRTC.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import libraries
from mgraph.kernels.host import compile_carried
from mgraph.kernels.source import KernelSource, Program

__all__ = ["GPUS", "carry", "compile_cuda", "supported_gpus"]

OPTIONS = ("-std=c++17",)
CUPYS = ("-ftz=true",)  # options that CuPy adds for NVRTC, and that nvcc needs too
GPUS = ("sm_120", "sm_100", "sm_90", "sm_89", "sm_86", "sm_80")  #: architectures of a wheel, the newest first

BLOCK = 256  # threads per block, unless an item needs more lanes
THREADS = 1024  # resident threads per multiprocessor of kernels with larger blocks: 64 registers per thread
TOGETHER = 512  # threads per block of a program of several ranks: fewer blocks meet faster
BACKGROUND = 3, 4  # share of the GPU that kernels of the background take if their blocks stay
DYNAMIC = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent; -1 leaves it to the driver
STATIC = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
DIVISION = 58  # percent of a multiprocessor's memory that is shared memory while the background runs: 132 KiB of 228
RESERVED = 1024  # bytes of shared memory that the driver takes per block
LITTLE = 4096  # bytes of shared memory per block that every division has
AFTER = 0.05  # seconds after a launch of the background in which others launch beside it
WAVES = 32  # maximum blocks per multiprocessor: kernels stride over items, and many blocks balance their work


def _entries(program: Program) -> str:
    """Return the text of the entry points, a ``__global__`` function per struct."""
    lines = []
    for kernel in program.kernels:
        kind, size = kernel.kind(program.view), _block(kernel)
        resident = kernel.resident or (THREADS // size if size > BLOCK else 0)
        bounds = f"{size}" + (f", {resident}" if resident else "")
        # As a grid constant, references to the kernel stay in constant memory.
        constant = "__grid_constant__ " if kernel.entry else ""
        call = f"{kernel.entry}(kernel)" if kernel.entry else "kernel(Grid{})"
        lines.append(
            f'extern "C" __global__ void __launch_bounds__({bounds}) '
            f"mgraph_{kernel.name}(const {constant}{kind} kernel) "
            f"{{ static_assert(sizeof({kind}) == {kernel.nbytes} && {kind}::lanes == {kernel.lanes}); "
            f"{call}; }}\n"
        )
    return "".join(lines)


def _block(kernel: KernelSource) -> int:
    """Return the threads per block."""
    return TOGETHER if kernel.entry == "drive" else max(BLOCK, kernel.lanes)


class _Parameters(threading.local):
    """Per-thread buffer for a kernel's fields, which a launch copies before it returns."""

    def __init__(self, nbytes: int) -> None:
        buffer, self.size = (ctypes.c_char * nbytes)(), ctypes.c_size_t(nbytes)
        self.fields = memoryview(buffer).cast("B")
        # CU_LAUNCH_PARAM_BUFFER_POINTER and its value, CU_LAUNCH_PARAM_BUFFER_SIZE and its own, CU_LAUNCH_PARAM_END
        self.extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(self.size), 0)
        self.address = ctypes.addressof(self.extra)
        self.list = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))  # the only parameter: the struct of all fields
        self.first = ctypes.addressof(self.list)


def _function(module: Any, kernel: KernelSource, driver: Any) -> Any:
    """Return a kernel's loaded function."""
    function = module.get_function(f"mgraph_{kernel.name}")
    if kernel.shared:
        driver.funcSetAttribute(function.ptr, DYNAMIC, kernel.shared)
    if (load := _driver_load()) is not None and load(ctypes.c_void_p(function.ptr)):
        raise DeviceError(f"the driver cannot load the kernel {kernel.name}")
    return function


@cache
def _driver_load() -> Any:
    """Return the driver's function that loads a kernel eagerly, from CUDA 12.4 on."""
    # Otherwise the first launch loads it, which takes 0.3 ms.
    with suppress(OSError):  # no driver of that name
        return getattr(ctypes.CDLL("libcuda.so.1"), "cuFuncLoad", None)
    return None


def _resident_blocks(device: Device, function: Any, kernel: KernelSource, processors: int) -> int:
    """Return how many blocks of a kernel the GPU runs concurrently."""
    size = _block(kernel)
    occupancy = device.xp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, size, kernel.shared)
    return int(occupancy) * processors


class _Division:
    """The division of the multiprocessors' memory into cache and shared memory that a kernel asks for.

    A multiprocessor changes its division only while it is idle. A kernel that asks for another one than that of the
    background, whose blocks stay, would wait until they leave. So while the background runs, all kernels with shared
    memory ask for the same.
    """

    background_until = 0.0  #: time until which kernels of the background count as running

    def __init__(self, driver: Any, function: Any, kernel: KernelSource, capacity: int, blocks: int = 1) -> None:
        self.nbytes = driver.funcGetAttribute(STATIC, function.ptr) + kernel.shared  #: shared memory of a block
        self._percent = min(100, max(DIVISION, -(-100 * blocks * (self.nbytes + RESERVED) // capacity)))
        self._set, self._address, self._beside = driver.funcSetAttribute, function.ptr, False

    def ask(self, background: bool) -> None:
        """Ask for the common division if the background runs, and otherwise leave it to the driver."""
        now = monotonic()
        if background:
            _Division.background_until = now + AFTER
        if self._beside != (now < _Division.background_until):
            self._beside = not self._beside
            self._set(self._address, CARVEOUT, self._percent if self._beside else -1)


def _launcher(
    device: Device, function: Any, kernel: KernelSource, most: int, capacity: int
) -> Callable[[bytes, int, int], None]:
    """Return a function that launches a kernel through the driver, with at most `most` blocks.

    `capacity` is the shared memory of a multiprocessor, in bytes.
    """
    # The driver's launch takes 3 us on the host, CuPy's RawKernel 7 us.
    driver, current_stream = device.xp.cuda.driver, device.xp.cuda.get_current_stream
    launch_kernel, address, lanes = driver.launchKernel, function.ptr, kernel.lanes
    parameters = _Parameters(kernel.nbytes)
    size, shared, division = _block(kernel), kernel.shared, _Division(driver, function, kernel, capacity)
    ask = division.ask if division.nbytes > LITTLE else None

    def launch(fields: bytes, items: int, threads: int) -> None:
        if ask is not None:
            ask(False)
        parameters.fields[:] = fields
        blocks = min(-(-items * lanes // size), most)
        launch_kernel(address, blocks, 1, 1, size, 1, 1, shared, current_stream().ptr, 0, parameters.address)

    launch.module = function  # type: ignore[attr-defined]  # keeps the kernel loaded
    return launch


def _cooperative_launcher(
    device: Device, function: Any, kernel: KernelSource, processors: int, capacity: int
) -> Callable[[bytes, int, int], None]:
    """Return a cooperative launcher, for kernels whose blocks meet."""
    # All blocks must be resident, so launch no more than run at once. From the background launch fewer: others run too.
    driver, current_stream = device.xp.cuda.driver, device.xp.cuda.get_current_stream
    address, parameters, lanes = function.ptr, _Parameters(kernel.nbytes), kernel.lanes
    size, shared, most = _block(kernel), kernel.shared, _resident_blocks(device, function, kernel, processors)
    launch_alone, launch_together = driver.launchKernel, driver.launchCooperativeKernel  # the latter takes longer
    background = max(1, most * BACKGROUND[0] // BACKGROUND[1])
    division = _Division(driver, function, kernel, capacity, most // processors)

    def launch(fields: bytes, items: int, threads: int) -> None:
        division.ask(threads < 0)
        parameters.fields[:] = fields
        blocks = min(-(-items * lanes // size), most if threads > 0 else background)
        stream = current_stream().ptr
        if blocks == 1:
            launch_alone(address, 1, 1, 1, size, 1, 1, shared, stream, 0, parameters.address)
        else:
            launch_together(address, blocks, 1, 1, size, 1, 1, shared, stream, parameters.first)

    launch.module = function  # type: ignore[attr-defined]
    return launch


def compile_cuda(program: Program, device: Device) -> dict[str, Callable[[bytes, int, int], None]]:
    """Compile a program and return its kernels by name.

    A kernel is called as ``function(packed fields, items, threads)``, asynchronously on the current stream. From the
    background, `threads` is negative.

    Raises
    ------
    DeviceError
        NVRTC rejects the program, or CuPy cannot write its cache.
    """
    return _compiled(program, Device("cuda", device.index))  # the same for the background


def _module(program: Program, xp: Any, capability: str) -> Any:
    """Load a program on the current GPU, of this compute capability: from the wheel, or compiled by NVRTC."""
    for cubin in _carried(program, capability):
        module = xp.cuda.Module()
        with suppress(xp.cuda.driver.CUDADriverError):  # the driver is older than the wheel's compiler
            module.load(cubin)
            return module
    try:
        return xp.RawModule(code=_text(program), options=OPTIONS).module
    except xp.cuda.compiler.CompileException as error:
        raise DeviceError(f"NVRTC failed on {program.name}:\n{str(error)[-4000:]}") from None
    except OSError as error:
        folder = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
        raise DeviceError(
            f"CuPy cannot write the compiled {program.name} to {folder}: {error}; set CUPY_CACHE_DIR to a folder "
            "of your own with free space, or set CUPY_CACHE_IN_MEMORY=1"
        ) from None


@cache
def _compiled(program: Program, device: Device) -> dict[str, Callable[[bytes, int, int], None]]:
    xp = device.xp
    with xp.cuda.Device(device.index) as gpu:
        gpu.use()  # a new thread has no context before
        module = _module(program, xp, gpu.compute_capability)
        # Choose each kernel's launcher and its maximum number of blocks.
        attributes = gpu.attributes
        processors, capacity = attributes["MultiProcessorCount"], attributes["MaxSharedMemoryPerMultiprocessor"]
        launchers = {}
        for k in program.kernels:
            function = _function(module, k, xp.cuda.driver)
            if k.persistent or k.entry == "drive":
                launchers[k.name] = _cooperative_launcher(device, function, k, processors, capacity)
            else:
                most = _resident_blocks(device, function, k, processors) if k.draws else processors * WAVES
                launchers[k.name] = _launcher(device, function, k, most, capacity)
    return launchers


# ---- programs in a wheel ---------------------------------------------------------------------------------------------


def _text(program: Program) -> str:
    """Return the text for a compiler."""
    return program.text + _entries(program)


def _place(program: Program, gpu: str, folder: Path) -> Path:
    """Return the path of a program's compressed cubin for an architecture."""
    return libraries.place(folder / gpu, program.name, ".cubin", _text(program), *OPTIONS, *CUPYS)


def _carried(program: Program, capability: str) -> Iterator[bytes]:
    """Yield the wheel's cubins of a program for GPUs of this compute capability, such as "90", the best first."""
    if not libraries.CARRIED.is_dir():
        return
    try:
        import lzma
    except ImportError:  # Python was built without it
        return
    # A cubin runs on GPUs of its major version with its minor version or a higher one.
    for gpu in GPUS:
        least = int(gpu.removeprefix("sm_"))
        if least <= int(capability) < 10 * (least // 10 + 1):
            packed = libraries.content(_place(program, gpu, libraries.CARRIED))
            if packed is not None:
                yield lzma.decompress(packed)


def supported_gpus() -> list[str]:
    """Return the architectures among `GPUS` for which the machine's nvcc compiles; none without nvcc."""
    if shutil.which("nvcc") is None:
        return []
    done = subprocess.run(["nvcc", "--list-gpu-code"], capture_output=True, text=True, timeout=60)
    return [gpu for gpu in GPUS if gpu in done.stdout.split()]


def carry(program: Program, gpu: str, folder: Path = libraries.CARRIED) -> Path:
    """Compile the program for an architecture into a wheel's folder, from the text that NVRTC gets."""
    import lzma

    command = ["nvcc", "-x", "cu", "-cubin", f"-arch={gpu}", *OPTIONS, *CUPYS]
    return compile_carried(command, _text(program), _place(program, gpu, folder), lzma.compress)
