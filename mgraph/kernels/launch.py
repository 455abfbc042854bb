"""Typed launch wrappers: a kernel is called with its fields by name, checked against its C++ declaration."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels.cuda import compile_cuda
from mgraph.kernels.host import compile_host, host_platform
from mgraph.kernels.source import Field, KernelSource, read_program

__all__ = ["Kernel", "Library", "Struct", "View", "load"]

CODES = {"int64": "q", "uint64": "Q", "float64": "d"}


class Struct:
    """Values for a C++ struct of 8-byte fields, by name: arrays and ints; packed once for all kernels that take it."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self._packed: dict[int, bytes] = {}

    def packed(self, field: Field, device: Device) -> bytes:
        """The bytes of a kernel's field; its declaration, made once a program, is what they are remembered by."""
        found = self._packed.get(id(field.inner))
        if found is None:
            found = self._packed[id(field.inner)] = _pack(field.inner, self.values, field.name, device)
        return found


class View(Struct):
    """What an algorithm's kernels read a structure through: a C++ struct and this epoch's values.

    Parameters
    ----------
    source, type : str
        The kernel file that declares the struct, and its name.
    values : mapping
        The struct's fields by name: arrays on the structure's device, and ints. Valid until the structure changes.
    defines : tuple of (name, value)
        Constants that the file was compiled with.
    """

    def __init__(
        self, source: str, type: str, values: Mapping[str, Any], defines: tuple[tuple[str, int], ...] = ()
    ) -> None:
        super().__init__(**values)
        self.source, self.type, self.defines = source, type, defines


_PACK = {code: struct.Struct(f"={code}").pack for code in "Qqd"}
_NULL = bytes(8)


def _pack(fields: tuple[Field, ...], values: Mapping[str, Any], where: str, device: Device) -> bytes:
    if len(values) != len(fields) or any(f.name not in values for f in fields):
        raise TypeError(f"{where} takes {sorted(f.name for f in fields)}, got {sorted(values)}")
    parts = []
    for field in fields:
        value = values[field.name]
        if field.pointer:
            parts.append(_NULL if value is None else _PACK["Q"](_address(value, field, where, device)))
        elif field.inner:
            parts.append((Struct(**value) if isinstance(value, dict) else value).packed(field, device))
        else:
            parts.append(_PACK[CODES[field.dtype]](value))
    return b"".join(parts)


def _address(array: Any, field: Field, where: str, device: Device) -> int:
    if array.dtype != field.dtype:
        raise TypeError(f"{where}.{field.name} is {field.dtype}*, got an array of {array.dtype}")
    if not array.flags.c_contiguous:
        raise TypeError(f"{where}.{field.name} must be contiguous")
    if isinstance(array, np.ndarray) != (device.kind == "cpu"):
        raise TypeError(f"{where}.{field.name} is a {type(array).__module__} array, and the kernel runs on {device}")
    return array.__array_interface__["data"][0] if device.kind == "cpu" else array.data.ptr


class Kernel:
    """One compiled kernel of one device."""

    def __init__(self, source: KernelSource, function: Callable[[bytes, int, int], None], device: Device) -> None:
        self.source, self.function, self.device = source, function, device

    def __call__(self, items: int, **fields: Any) -> None:
        """Run over `items` items: asynchronous on a GPU's current stream, done on return on the CPU.

        No item, no launch. A pointer takes an array of its dtype or None; a struct takes a `Struct`, a `View` or a dict.
        """
        packed = _pack(self.source.fields, fields, self.source.name, self.device)
        if items > 0:
            self.function(packed, items, self.device.threads)


class Library:
    """The kernels of one file on one device, as attributes: ``library.Degrees(n, ...)``."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.__dict__.update(kernels)

    def __getattr__(self, name: str) -> Kernel:  # only reached for a name that is no kernel
        raise AttributeError(f"no kernel {name!r} here, only {sorted(self.__dict__)}")


_libraries: dict[Any, Library] = {}


def load(device: Device, file: str, view: View | None = None, **defines: int) -> Library:
    """Compile a kernel file for `device`, or find it compiled; templates over a View get `view`'s.

    Seconds the first time on a machine, microseconds after that. Load when a graph is created, not inside a superstep.

    Raises
    ------
    DeviceError
        No compiler, or it refused the source: the message holds its output.
    """
    constants = tuple(sorted({**dict(view.defines if view else ()), **defines}.items()))
    key = (device, file, view and (view.source, view.type), constants)
    found = _libraries.get(key)
    if found is None:
        platform = host_platform() if device.kind == "cpu" else "platform_cuda.cuh"
        program = read_program(file, platform, constants, view and (view.source, view.type))
        functions = compile_host(program) if device.kind == "cpu" else compile_cuda(program, device)
        found = Library({k.name: Kernel(k, functions[k.name], device) for k in program.kernels})
        _libraries[key] = found
    return found
