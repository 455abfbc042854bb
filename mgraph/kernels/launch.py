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


_inner_packers: dict[int, _Packer] = {}


class Struct:
    """Values for a C++ struct of 8-byte fields, by name: arrays and ints; packed once for all kernels that take it."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self._packed: dict[int, bytes] = {}

    def packed(self, field: Field, device: Device) -> bytes:
        """The bytes of a kernel's field, remembered by its declaration, of which there is one object."""
        found = self._packed.get(id(field.inner))
        if found is None:
            packer = _inner_packers.get(id(field.inner))
            if packer is None:
                packer = _inner_packers[id(field.inner)] = _Packer(field.name, field.inner)
            found = self._packed[id(field.inner)] = packer(self.values, device)
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


_MISSING = object()


class _Packer:
    """Turns values by name into the bytes of fields in order."""

    def __init__(self, where: str, fields: tuple[Field, ...]) -> None:
        self.where, self.names = where, [f.name for f in fields]
        self.rows = [(f, np.dtype(f.dtype) if f.pointer else None) for f in fields]
        codes = (f"{8 * f.words}s" if f.inner else "Q" if f.pointer else CODES[f.dtype] for f in fields)
        self.pack = struct.Struct("=" + "".join(codes)).pack

    def __call__(self, values: Mapping[str, Any], device: Device) -> bytes:
        try:
            return self.pack(*self._words(values, device))
        except (AttributeError, struct.error):  # a value of a wrong kind: only now is it looked for
            raise TypeError(f"{self.where}.{self._wrong(values)}") from None

    def _words(self, values: Mapping[str, Any], device: Device) -> list[Any]:
        words = []
        for field, dtype in self.rows:
            value = values.get(field.name, _MISSING)
            if value is _MISSING:
                break
            if dtype is not None:
                value = 0 if value is None else self._address(value, field.name, dtype, device)
            elif field.inner:
                value = (Struct(**value) if isinstance(value, dict) else value).packed(field, device)
            words.append(value)
        if len(words) != len(self.rows) or len(values) != len(self.rows):
            raise TypeError(f"{self.where} takes {sorted(self.names)}, got {sorted(values)}")
        return words

    def _wrong(self, values: Mapping[str, Any]) -> str:
        """The first value that is no array, struct or number where one belongs."""
        for field, dtype in self.rows:
            value = values[field.name]
            if dtype is not None:
                if value is not None and not hasattr(value, "dtype"):
                    return f"{field.name} is {dtype}*, got {value!r}"
            elif field.inner:
                if not isinstance(value, Struct | dict):
                    return f"{field.name} is a struct, got {value!r}"
            else:
                try:
                    struct.pack(CODES[field.dtype], value)
                except struct.error as error:
                    return f"{field.name} is {field.dtype}, got {value!r}: {error}"
        raise AssertionError("no value is wrong")

    def _address(self, array: Any, name: str, dtype: np.dtype, device: Device) -> int:
        if array.dtype is not dtype and array.dtype != dtype:
            raise TypeError(f"{self.where}.{name} is {dtype}*, got an array of {array.dtype}")
        if not array.flags.c_contiguous:
            raise TypeError(f"{self.where}.{name} must be contiguous")
        if isinstance(array, np.ndarray) != (device.kind == "cpu"):
            raise TypeError(f"{self.where}.{name} is a {type(array).__module__} array, and the kernel runs on {device}")
        return array.__array_interface__["data"][0] if device.kind == "cpu" else array.data.ptr


class Kernel:
    """One compiled kernel of one device."""

    def __init__(self, source: KernelSource, function: Callable[[bytes, int, int], None], device: Device) -> None:
        self.source, self.function, self.device = source, function, device
        self._packer = _Packer(source.name, source.fields)

    def __call__(self, items: int, **fields: Any) -> None:
        """Run over `items` items: asynchronous on a GPU's current stream, done on return on the CPU.

        No item, no launch. A pointer takes an array of its dtype or None; a struct a `Struct`, a `View` or a dict.
        """
        packed = self._packer(fields, self.device)
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

    `file` is a name in this folder, or an absolute path. `defines` become macros.

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
