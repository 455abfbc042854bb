"""Launching kernels: a kernel is called with its fields by name, which are checked against its C++ declaration."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from mgraph.device import Device
from mgraph.kernels.cuda import compile_cuda
from mgraph.kernels.host import compile_host, host_platform
from mgraph.kernels.source import Field, KernelSource, read_program

__all__ = ["Kernel", "Library", "Struct", "View", "load"]

CODES = {"int64": "q", "uint64": "Q", "float64": "d"}
NOT_FAST = (KeyError, AttributeError, TypeError, ValueError, struct.error)  #: see `_Packer`


class Struct:
    """Values for a C++ struct of 8-byte fields, by name: arrays and ints. Packed once for all kernels that take it."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self._packed: dict[int, bytes] = {}

    def packed(self, field: Field, device: Device) -> bytes:
        """The bytes for a kernel's field, cached by the field's declaration."""
        found = self._packed.get(id(field.inner))
        if found is None:
            packer = _inner_packer(field, device)
            try:
                found = packer.fast(self.values)
            except NOT_FAST:
                found = packer(self.values)
            self._packed[id(field.inner)] = found
        return found


class View(Struct):
    """The view through which an algorithm's kernels read a structure: a C++ struct and its values at this epoch.

    Parameters
    ----------
    source, type : str
        The kernel file that declares the struct, and its name.
    values : mapping
        The struct's fields by name: arrays on the structure's device, and ints. Valid until the structure changes.
    defines : tuple of (name, value)
        Macros with which the file is compiled.
    """

    def __init__(
        self, source: str, type: str, values: Mapping[str, Any], defines: tuple[tuple[str, int], ...] = ()
    ) -> None:
        super().__init__(**values)
        self.source, self.type, self.defines = source, type, tuple(sorted(defines))


def _host_address(array: Any, dtype: np.dtype) -> int:
    if array is None:
        return 0
    if array.dtype != dtype:
        raise ValueError
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:  # read-only, or empty
        return int(array.__array_interface__["data"][0])
    raise ValueError


def _device_address(array: Any, dtype: np.dtype) -> int:
    if array is None:
        return 0
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError
    return int(array.data.ptr)


def _no_address() -> NoReturn:
    raise ValueError


#: the address of an array `a`; a buffer takes a third of the time of NumPy's interface, and checks that the array is
#: contiguous host memory
_ADDRESS = {"cpu": "addressof(from_buffer(a))", "cuda": "a.data.ptr if a.flags.c_contiguous else none()"}


def _struct(value: Any) -> Any:
    return Struct(**value) if isinstance(value, dict) else value


class _Packer:
    """Packs values, given by name, into the bytes of fields in order.

    A launch of a small kernel takes 2 us on a GPU, and packing a field 0.2 us on the host. So only the necessary checks
    are made by `fast`, a function that is written out for these fields: a loop over them takes twice as long, and
    functions for the kinds of fields half as long again. It raises one of `NOT_FAST` for what it does not take: dicts,
    arrays that are read-only or empty, and what is wrong. A call of the packer takes all of these but the last. What
    exactly is wrong is searched for only then.
    """

    def __init__(self, where: str, fields: tuple[Field, ...], device: Device) -> None:
        self.where, self.device, self.fields = where, device, fields
        self._names = {f.name for f in fields}
        codes = (f"{8 * f.words}s" if f.inner else "Q" if f.pointer else CODES[f.dtype] for f in fields)
        given: dict[str, Any] = {
            "pack": struct.Struct("=" + "".join(codes)).pack,
            "address": _host_address if device.kind == "cpu" else _device_address,
            "struct": lambda value, field: _struct(value).packed(field, device),
            "addressof": ctypes.addressof,
            "from_buffer": ctypes.c_char.from_buffer,
            "none": _no_address,
            "device": device,
        }
        slow, fast = [], []
        for i, f in enumerate(fields):
            value, kind = f"values[{f.name!r}]", f"kind{i}"
            given[kind] = f if f.inner else np.dtype(f.dtype)
            if f.inner:
                _inner_packer(f, device)  # made now: the first launch would take 0.1 ms longer
                slow.append(f"struct({value}, {kind})")
                fast.append(f"({value}._packed.get({id(f.inner)}) or {value}.packed({kind}, device))")
            elif f.pointer:
                same = f"a.dtype is {kind} or a.dtype == {kind}"
                slow.append(f"address({value}, {kind})")
                fast.append(f"(0 if (a := {value}) is None else ({_ADDRESS[device.kind]}) if {same} else none())")
            else:
                slow.append(value)
                fast.append(value)
        n = len(fields)
        self.fast = eval(f"lambda values: pack({', '.join(fast)}) if len(values) == {n} else none()", given)
        self._slow = eval(f"lambda values: pack({', '.join(slow)})", given)

    def __call__(self, values: Mapping[str, Any]) -> bytes:
        try:
            if values.keys() == self._names:
                packed: bytes = self._slow(values)
                return packed
        except (KeyError, AttributeError, ValueError, struct.error):
            pass
        raise TypeError(f"{self.where}{self._wrong(values)}")

    def _elsewhere(self, array: Any) -> bool:
        return isinstance(array, np.ndarray) != (self.device.kind == "cpu")

    def _wrong(self, values: Mapping[str, Any]) -> str:
        """The message for the first wrong value: its type, dtype, layout or device is not that of the field."""
        if values.keys() != {f.name for f in self.fields}:
            return f" takes {sorted(f.name for f in self.fields)}, got {sorted(values)}"
        for field in self.fields:
            found = self._wrong_value(field, values[field.name])
            if found:
                return f".{field.name} {found}"
        raise AssertionError("no value is wrong")

    def _wrong_value(self, field: Field, value: Any) -> str | None:
        if field.inner:
            return None if isinstance(value, Struct | dict) else f"is a struct, got {value!r}"
        if not field.pointer:
            try:
                struct.pack(CODES[field.dtype], value)
            except struct.error as error:
                return f"is {field.dtype}, got {value!r}: {error}"
        elif value is not None:
            if not hasattr(value, "dtype"):
                return f"is {field.dtype}*, got {value!r}"
            if value.dtype != field.dtype:
                return f"is {field.dtype}*, got an array of {value.dtype}"
            if not value.flags.c_contiguous:
                return "must be contiguous"
            if self._elsewhere(value):
                return f"is a {type(value).__module__} array, and the kernel runs on {self.device}"
        return None


_inner_packers: dict[tuple[int, str], _Packer] = {}


def _inner_packer(field: Field, device: Device) -> _Packer:
    """The packer of a field that is a struct, one for all kernels with such a field."""
    found = _inner_packers.get((id(field.inner), device.kind))
    if found is None:
        assert field.inner
        found = _inner_packers[id(field.inner), device.kind] = _Packer(field.name, field.inner, device)
    return found


class Kernel:
    """A kernel compiled for one device."""

    def __init__(self, source: KernelSource, function: Callable[[bytes, int, int], None], device: Device) -> None:
        self.source, self.function, self.device = source, function, device
        self._packer, self._threads = _Packer(source.name, source.fields, device), device.threads
        self._fast = self._packer.fast
        self._bound: dict[int, tuple[_Packer, _Packer]] = {}

    def __call__(self, items: int, **fields: Any) -> None:
        """Run over `items` items, asynchronously on a GPU's current stream; on the CPU it is done on return.

        With 0 items nothing is launched. A pointer takes an array of its dtype or None; a struct takes a `Struct`, a
        `View` or a dict. `TypeError` for any other value.
        """
        try:
            packed = self._fast(fields)
        except NOT_FAST:
            packed = self._packer(fields)
        if items > 0:
            self.function(packed, items, self._threads)

    def bind(self, **fixed: Any) -> Bound:
        """The kernel with its last fields fixed and packed once, to launch it many times on the same arrays."""
        return Bound(self, fixed)

    def packers(self, fixed: int) -> tuple[_Packer, _Packer]:
        """The packer of all fields but the last `fixed`, and the packer of these."""
        if fixed not in self._bound:
            parts = self.source.fields[:-fixed], self.source.fields[-fixed:]
            first, last = (_Packer(self.source.name, fields, self.device) for fields in parts)
            self._bound[fixed] = first, last
        return self._bound[fixed]


class Bound:
    """A kernel whose last fields are packed already. Call it with the items and the other fields."""

    def __init__(self, kernel: Kernel, fixed: Mapping[str, Any]) -> None:
        self.kernel, self.fixed = kernel, fixed  # keeps the arrays alive
        self._packer, last = kernel.packers(len(fixed))
        self._fast, self._last = self._packer.fast, last(fixed)
        self._function, self._threads = kernel.function, kernel.device.threads

    def __call__(self, items: int, **fields: Any) -> None:
        """Run as `Kernel.__call__`, with the fields that are not bound."""
        try:
            packed = self._fast(fields)
        except NOT_FAST:
            packed = self._packer(fields)
        if items > 0:
            self._function(packed + self._last, items, self._threads)


class Library:
    """The kernels of one file on one device, as attributes: ``library.Degrees(n, ...)``."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.__dict__.update(kernels)

    def __getattr__(self, name: str) -> Kernel:  # called only for names that are not kernels
        raise AttributeError(f"no kernel {name!r} here, only {sorted(self.__dict__)}")


_libraries: dict[Any, Library] = {}


def load(device: Device, file: str, view: View | None = None, **defines: int | str) -> Library:
    """The kernels of a file for `device`, compiled if they are not cached; templates are compiled for `view`.

    `file` is relative to the package's folder, or absolute. `defines` become macros: integers, or C++ expressions.

    Takes seconds the first time on a machine, and microseconds after that. Call it when a graph is created, not inside
    a superstep.

    Raises
    ------
    DeviceError
        There is no compiler, it rejects the source (the message has its output), or no folder can hold the library.
    """
    constants: tuple[tuple[str, int | str], ...] = view.defines if view else ()
    if defines:
        constants = tuple(sorted({**dict(constants), **defines}.items()))
    key = (device.key, file, view and (view.source, view.type), constants)
    found = _libraries.get(key)
    if found is None:
        platform = host_platform() if device.kind == "cpu" else "kernels/platform/cuda.cuh"
        program = read_program(file, platform, constants, view and (view.source, view.type))
        functions = compile_host(program) if device.kind == "cpu" else compile_cuda(program, device)
        found = Library({k.name: Kernel(k, functions[k.name], device) for k in program.kernels})
        _libraries[key] = found
    return found
