"""Compiles a program with NVRTC through CuPy, which caches by content: headers are inlined, so an edit is a new key."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels.source import KernelSource, Program

__all__ = ["compile_cuda"]

BLOCK = 256  # threads a block
WAVES = 32  # blocks a multiprocessor at most: kernels stride over their items; many, so that the last ones even out


def _entries(program: Program) -> str:
    lines = []
    for kernel in program.kernels:
        kind = f"{kernel.name}<{program.view}>" if kernel.template else kernel.name
        lines.append(
            f'extern "C" __global__ void __launch_bounds__({BLOCK}) mgraph_{kernel.name}(const {kind} kernel) '
            f"{{ static_assert(sizeof({kind}) == {kernel.nbytes}); kernel(Grid{{}}); }}\n"
        )
    return "".join(lines)


def _launcher(function: object, kernel: KernelSource, most: int) -> Callable[[bytes, int, int], None]:
    one = np.dtype(f"V{kernel.nbytes}")  # CuPy passes a NumPy array of one element by value

    def launch(fields: bytes, items: int, threads: int) -> None:
        blocks = min(-(-items * kernel.lanes // BLOCK), most)
        function((blocks,), (BLOCK,), (np.frombuffer(fields, one),))  # type: ignore[operator]  # CuPy is untyped

    return launch


@cache
def compile_cuda(program: Program, device: Device) -> dict[str, Callable[[bytes, int, int], None]]:
    """Kernel name -> function(packed fields, items, threads), asynchronous on the calling thread's current stream."""
    xp = device.xp
    module = xp.RawModule(code=program.text + _entries(program), options=("-std=c++17",))
    try:
        module.compile()
    except xp.cuda.compiler.CompileException as error:
        raise DeviceError(f"NVRTC failed on {program.name}:\n{str(error)[-4000:]}") from None
    most = xp.cuda.Device(device.index).attributes["MultiProcessorCount"] * WAVES
    return {k.name: _launcher(module.get_function(f"mgraph_{k.name}"), k, most) for k in program.kernels}
