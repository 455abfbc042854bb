"""Kernel launches: a call passes fields by name, checked against the C++ declaration."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from mgraph.device import Device
from mgraph.kernels.cuda import compile_cuda
from mgraph.kernels.host import compile_host, host_platform
from mgraph.kernels.source import Field, KernelSource, Program, read_program
from mgraph.kernels.stopwatch import loading

__all__ = ["Kernel", "Library", "Struct", "View", "compile_together", "load"]

CODES = {"int64": "q", "uint64": "Q", "float64": "d"}
Launch = Callable[..., None]  #: launches a kernel: ``launch(items, **fields)``
NOT_FAST = (KeyError, AttributeError, TypeError, ValueError, struct.error)  #: errors of the packers' fast code


class Struct:
    """Values for a C++ struct of 8-byte fields, packed once for all kernels."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self._packed: dict[int, bytes] = {}

    def packed(self, field: Field, device: Device) -> bytes:
        """Return the bytes for a kernel's field, cached by the field's declaration."""
        data = self._packed.get(id(field.inner))
        if data is None:
            data = self._packed[id(field.inner)] = _inner_packer(field, device)(self.values)
        return data


class View(Struct):
    """View of a structure at this epoch, for an algorithm's kernels: a C++ struct and its values.

    Parameters
    ----------
    source, type : str
        The kernel file with the struct's declaration, and its name.
    values : mapping
        The struct's fields by name: arrays on the structure's device, and ints. Valid until the structure changes.
    defines : tuple of (name, value)
        Macros for the compilation of the file.
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


#: code for the address of an array `a`; ctypes takes a third of the time of NumPy's interface, and checks that the
#: array is contiguous host memory
_ADDRESS = {"cpu": "_addressof(_from_buffer(_a))", "cuda": "_a.data.ptr if _a.flags.c_contiguous else _none()"}

#: a function that makes launchers of a kernel, whose last fields are packed
_LAUNCHERS = """
def launcher(_function, _threads, _last):
    def {kernel}({parameters}):
        try:
            packed = _pack({values})
        except _NOT_FAST:
            packed = _packer(dict({fields}))
        if _items > 0:
            _function(packed + _last, _items, _threads)
    return {kernel}
"""
#: such a function for kernels with only packed fields
_LAUNCHERS_OF_PACKED = """
def launcher(_function, _threads, _last):
    def {kernel}(_items):
        if _items > 0:
            _function(_last, _items, _threads)
    return {kernel}
"""


def _struct(value: Any) -> Any:
    return Struct(**value) if isinstance(value, dict) else value


class _Packer:
    """Packer of values by name into the bytes of fields in order.

    A launch of a small kernel takes 2 us on a GPU, and packing a field 0.2 us on the host. So `_fast` and `launcher`
    are code generated for these fields with the minimal checks: a loop over the fields takes twice as long, and
    functions per kind of field half as long again. The code raises one of `NOT_FAST` for dicts, for read-only or empty
    arrays, and for wrong values. Then `_slow` packs those that are right, and only if it fails too is the wrong value
    searched for.
    """

    def __init__(self, where: str, fields: tuple[Field, ...], device: Device) -> None:
        self.where, self.device, self.fields = where, device, fields
        self._names = {f.name for f in fields}
        codes = (f"{8 * f.words}s" if f.inner else "Q" if f.pointer else CODES[f.dtype] for f in fields)
        self._code: dict[str, Any] = {  # names of the generated code; no field's name begins with "_"
            "_pack": struct.Struct("=" + "".join(codes)).pack,  # "=" packs without padding
            "_packer": self,
            "_address": _host_address if device.kind == "cpu" else _device_address,
            "_struct": lambda value, field: _struct(value).packed(field, device),
            "_addressof": ctypes.addressof,
            "_from_buffer": ctypes.c_char.from_buffer,
            "_none": _no_address,
            "_device": device,
            "_NOT_FAST": NOT_FAST,
        }
        # Write an expression per field, for each of the two functions.
        slow, fast = [], []
        for i, f in enumerate(fields):
            value, kind = f"values[{f.name!r}]", f"_kind{i}"
            self._code[kind] = f if f.inner else np.dtype(f.dtype)
            fast.append(self._expression(i, value))
            if f.inner:
                _inner_packer(f, device)  # cached now: the first launch would take 0.1 ms longer
                slow.append(f"_struct({value}, {kind})")
            else:
                slow.append(f"_address({value}, {kind})" if f.pointer else value)

        # Compile both functions.
        n = len(fields)
        self._fast: Callable[[Mapping[str, Any]], bytes]
        self._slow: Callable[[Mapping[str, Any]], bytes]
        self._fast = eval(f"lambda values: _pack({', '.join(fast)}) if len(values) == {n} else _none()", self._code)
        self._slow = eval(f"lambda values: _pack({', '.join(slow)})", self._code)

    def _expression(self, i: int, value: str) -> str:
        """Return an expression for the packed field `i` with the minimal checks; `value` is that of its value."""
        f, kind = self.fields[i], f"_kind{i}"
        if f.inner:
            return f"({value}._packed.get({id(f.inner)}) or {value}.packed({kind}, _device))"
        if not f.pointer:
            return value
        same = f"_a.dtype is {kind} or _a.dtype == {kind}"
        return f"(0 if (_a := {value}) is None else ({_ADDRESS[self.device.kind]}) if {same} else _none())"

    @cached_property
    def launcher(self) -> Callable[[Callable[[bytes, int, int], None], Any, bytes], Launch]:
        """``launcher(function, threads, last)`` returns a function of items and fields by name.

        It packs the fields, appends `last`, and calls `function` if there are items. Its name is the kernel's.
        """
        names = [f.name for f in self.fields]
        text = (_LAUNCHERS if names else _LAUNCHERS_OF_PACKED).format(
            kernel=self.where, parameters=", ".join(["_items", "*", *names]),
            values=", ".join(self._expression(i, name) for i, name in enumerate(names)),
            fields=", ".join(f"{name}={name}" for name in names),
        )  # fmt: skip
        exec(compile(text, __file__, "exec"), self._code)
        launcher: Callable[..., Launch] = self._code["launcher"]
        return launcher

    def __call__(self, values: Mapping[str, Any]) -> bytes:
        """Return the packed values; raises `TypeError` for a wrong one."""
        try:
            return self._fast(values)
        except NOT_FAST:
            pass
        try:
            if values.keys() == self._names:
                return self._slow(values)
        except (KeyError, AttributeError, ValueError, struct.error):
            pass
        raise TypeError(f"{self.where}{self._wrong(values)}")

    def _elsewhere(self, array: Any) -> bool:
        return isinstance(array, np.ndarray) != (self.device.kind == "cpu")

    def _wrong(self, values: Mapping[str, Any]) -> str:
        """Return the message for the first wrong value."""
        if values.keys() != {f.name for f in self.fields}:
            return f" takes {sorted(f.name for f in self.fields)}, got {sorted(values)}"
        for field in self.fields:
            problem = self._wrong_value(field, values[field.name])
            if problem:
                return f".{field.name} {problem}"
        raise AssertionError("no value is wrong")

    def _wrong_value(self, field: Field, value: Any) -> str | None:
        """Return the type, dtype, layout or device that makes a value wrong, or None."""
        if field.inner:
            return None if isinstance(value, Struct | dict) else f"is a struct, got {value!r}"
        # Numbers must fit their type; pointers need an array of the dtype, contiguous, on the device.
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
    """Return the packer of a struct field, shared by all kernels with that struct."""
    packer = _inner_packers.get((id(field.inner), device.kind))
    if packer is None:
        assert field.inner
        packer = _inner_packers[id(field.inner), device.kind] = _Packer(field.name, field.inner, device)
    return packer


class Kernel:
    """Kernel compiled for one device."""

    def __init__(self, source: KernelSource, function: Callable[[bytes, int, int], None], device: Device) -> None:
        self.source, self.function, self.device = source, function, device
        threads = -device.threads if device.background else device.threads
        self.threads: Any = ctypes.c_int(threads) if device.kind == "cpu" else threads  # converted once, not per launch
        self._launch = _Packer(source.name, source.fields, device).launcher(function, self.threads, b"")
        self._packers: dict[int, tuple[_Packer, _Packer]] = {}  # keys are numbers of bound fields

    def __call__(self, items: int, **fields: Any) -> None:
        """Run over `items` items: asynchronously on a GPU's current stream, synchronously on the CPU.

        With 0 items nothing is launched. A pointer takes an array of its dtype or None; a struct takes a `Struct`, a
        `View` or a dict. Raises `TypeError` for any other value.
        """
        self._launch(items, **fields)

    @property
    def address(self) -> int:
        """The address of a host kernel's function, for other kernels that call it."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def bind(self, **fixed: Any) -> Launch:
        """Return a function that launches the kernel, with its last fields packed once.

        It takes items, and the other fields by name, and keeps the arrays of the `fixed` ones alive.
        """
        n = len(fixed)
        if n not in self._packers:
            with loading():
                parts = self.source.fields[:-n], self.source.fields[-n:]
                first, last = (_Packer(self.source.name, fields, self.device) for fields in parts)
                _ = first.launcher
                self._packers[n] = first, last
        first, last = self._packers[n]
        launch = first.launcher(self.function, self.threads, last(fixed))
        launch.fixed = fixed  # type: ignore[attr-defined]
        return launch


class Library:
    """Kernels of a file on a device, as attributes: ``library.Degrees(n, ...)``.

    The first attribute of a library that is still being compiled waits for it.
    """

    def __init__(self, kernels: Mapping[str, Kernel] | Future[Mapping[str, Kernel]]) -> None:
        if isinstance(kernels, Future):
            self.__dict__[_COMING] = kernels
        else:
            self.__dict__.update(kernels)

    def __getattr__(self, name: str) -> Kernel:  # called only for names that are not there, or not yet
        if (coming := self.__dict__.get(_COMING)) is not None:
            with loading():
                self.__dict__.update(coming.result())
            self.__dict__.pop(_COMING, None)
        if name in self.__dict__:
            kernel: Kernel = self.__dict__[name]
            return kernel
        raise AttributeError(f"no kernel {name!r} here, only {sorted(self.__dict__)}")


_COMING = " coming"  #: attribute of a library that is being compiled; no kernel's name
_libraries: dict[Any, Library] = {}


class _Together:
    """Compilations that run at the same time, by the keys of their libraries.

    Most blocks find all libraries loaded, so the first compilation makes the threads.
    """

    def __init__(self) -> None:
        self.running = dict[Any, "Future[Mapping[str, Kernel]]"]()

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for the compilations, as many as there are CPUs."""
        return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "mgraph-compile")


_together: ContextVar[_Together | None] = ContextVar("together", default=None)


@contextmanager
def compile_together() -> Iterator[None]:
    """Compile the programs that this block loads at the same time, as many as there are CPUs.

    `load` returns at once, and the first use of a library waits for it. The end of the block waits for all, and raises
    the first error. Inside another such block it does nothing. The host's compiler is a process of its own, and NVRTC
    compiles without Python's lock.
    """
    if _together.get() is not None:
        yield
        return
    together = _Together()
    token = _together.set(together)
    try:
        yield
    finally:
        _together.reset(token)
        if together.running:
            with loading():
                together.pool.shutdown()
        # What was not compiled is tried again by the next `load`.
        failed = {key: error for key, task in together.running.items() if (error := task.exception()) is not None}
        for key in failed:
            _libraries.pop(key, None)
    for error in failed.values():
        raise error


def load(device: Device, file: str, view: View | None = None, **defines: int | str) -> Library:
    """Return the kernels of a file for `device`, compiled unless cached; in `compile_together` perhaps later.

    Templates are compiled for `view`. `file` is relative to the package's folder, or absolute. `defines` become macros:
    integers, or C++ expressions. The first call on a machine takes seconds, later calls microseconds: call it when a
    graph is created, not inside a superstep.

    Raises
    ------
    DeviceError
        The compiler is missing, it rejects the source (the message has its output), or no folder can hold the library.
    """
    constants: tuple[tuple[str, int | str], ...] = view.defines if view else ()
    if defines:
        constants = tuple(sorted({**dict(constants), **defines}.items()))
    key = (device.key, file, view and (view.source, view.type), constants)
    library = _libraries.get(key)
    if library is None:
        platform = host_platform() if device.kind == "cpu" else "kernels/platform/cuda.cuh"
        with loading():
            program = read_program(file, platform, constants, view and (view.source, view.type))
            together = _together.get()
            if together is None:
                library = Library(_compiled(program, device))
            else:
                task = together.running[key] = together.pool.submit(_compiled, program, device)
                library = Library(task)
        _libraries[key] = library
    return library


def _compiled(program: Program, device: Device) -> dict[str, Kernel]:
    """Compile a program unless it is cached, and return its kernels by name."""
    functions = compile_host(program) if device.kind == "cpu" else compile_cuda(program, device)
    if device.stream is not None:
        device = replace(device, stream=None)  # kernels outlive the graph that loads them, and its stream
    return {k.name: Kernel(k, functions[k.name], device) for k in program.kernels}
