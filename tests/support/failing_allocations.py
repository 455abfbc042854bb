"""Allocations that fail, one after another: each has a number, and one number fails.

On the host these are NumPy's allocations, those that a `Budget` grants, and pages of arrays that grow. On a GPU they
are CuPy's, pages of arrays that grow there, memory from the driver that other ranks map, memory of CUDA's
stream-ordered pool for copies, and page-locked memory.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from patience import patience

from mgraph import CapacityError, DynamicGraph, growing
from mgraph.budget import Budget
from mgraph.device import allocator, device, hardware, transfers

__all__ = ["FailingAllocations", "Here", "OnRank", "each_fails_once", "state_of", "watched", "watched_workers"]

LEAST = 1 << 10  #: bytes from which an allocation counts: what grows with a graph, a batch or a result
MOST = 10_000  #: allocations of a call
TABLES = 17 * 512  #: bytes of a GPU in tables of addresses: programs' last layouts have one each, calls that fail too
DRIVER: dict[int, int] = {}  #: bytes from a GPU's driver, by address
_ENTERED = ExitStack()  #: of a worker process

SOURCE = r"""
#define _GNU_SOURCE
#include <malloc.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void* (*malloc_t)(void*, size_t);
typedef void* (*calloc_t)(void*, size_t, size_t);
typedef void* (*realloc_t)(void*, void*, size_t);
typedef void (*free_t)(void*, void*, size_t);
malloc_t old_malloc;
calloc_t old_calloc;
realloc_t old_realloc;
free_t old_free;
int watching, numpy, thread, fired; /* numpy: 1 if NumPy's allocations count */
long failing, count, live; /* live: bytes in large allocations */

/* One of the allocations that count; 1 if it fails. */
int fails(size_t nbytes) {
    if (!watching || nbytes < LEAST || (thread && thread != syscall(SYS_gettid))) return 0;
    if (__sync_fetch_and_add(&count, 1) != failing) return 0;
    return fired = 1;
}

void* keep(void* place, int sign) {
    long nbytes = place ? malloc_usable_size(place) : 0;
    if (nbytes >= LEAST) __sync_fetch_and_add(&live, sign * nbytes);
    return place;
}
void* new_malloc(void* context, size_t n) { return numpy && fails(n) ? NULL : keep(old_malloc(context, n), 1); }
void* new_calloc(void* context, size_t n, size_t size) {
    return numpy && fails(n * size) ? NULL : keep(old_calloc(context, n, size), 1);
}
void* new_realloc(void* context, void* old, size_t n) {
    return numpy && fails(n) ? NULL : keep(old_realloc(context, keep(old, -1), n), 1);
}
void new_free(void* context, void* place, size_t n) { old_free(context, keep(place, -1), n); }
"""


class _Handler(ctypes.Structure):  # NumPy's PyDataMem_Handler
    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL:
    """The counting allocator, in place of the one of NumPy's default handler."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "fails.c", Path(folder) / "fails.so"
        source.write_text(SOURCE)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        flags = [f"-DLEAST={LEAST}", "-O1", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", binary, source], check=True, timeout=100)
        library = ctypes.CDLL(str(binary))

    # The C API's table has the address of the variable with the default handler's capsule.
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    api = ctypes.cast(pointer(np._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    capsule = ctypes.cast(api[306], ctypes.POINTER(ctypes.py_object))[0]
    handler = _Handler.from_address(pointer(capsule, b"mem_handler"))
    assert handler.name == b"default_allocator"
    for name in ("malloc", "calloc", "realloc", "free"):
        ctypes.c_void_p.in_dll(library, f"old_{name}").value = getattr(handler, name)
        setattr(handler, name, ctypes.cast(getattr(library, f"new_{name}"), ctypes.c_void_p).value)
    return library


class FailingAllocations:
    """Counts the allocations of at least `LEAST` bytes in a block, and fails the one with the number `failing`.

    Attributes
    ----------
    failing : int
        From 0; -1 for none.
    thread : int
        The native id of the only thread whose allocations count; 0 for all threads.
    kind : "cpu" | "cuda"
        Whose memory fails: the host's or that of a GPU.
    """

    def __init__(self, failing: int = -1, thread: int = 0, kind: str = "cpu") -> None:
        self.failing, self.thread, self.kind = failing, thread, kind

    def __enter__(self) -> FailingAllocations:
        self._set("count", 0, ctypes.c_long)
        self._set("failing", self.failing, ctypes.c_long)
        self._set("numpy", int(self.kind == "cpu"))
        self._set("thread", self.thread)
        self._set("fired", 0)
        self._set("watching", 1)
        return self

    def __exit__(self, *error: object) -> None:
        self._set("watching", 0)

    @staticmethod
    def _set(name: str, value: int, kind: Any = ctypes.c_int) -> None:
        kind.in_dll(_library(), name).value = value

    @property
    def count(self) -> int:
        """The allocations that counted."""
        return int(ctypes.c_long.in_dll(_library(), "count").value)

    @property
    def fired(self) -> bool:
        """True once an allocation failed."""
        return bool(ctypes.c_int.in_dll(_library(), "fired").value)


@contextmanager
def watched(kind: str = "cpu") -> Iterator[None]:
    """Let small graphs take the ways of large ones, and count what is no allocation of NumPy's."""
    gc.collect()
    gc.freeze()  # later collections look at what the test makes
    with pytest.MonkeyPatch.context() as patch, _on_host(patch) if kind == "cpu" else _on_gpu(patch):
        for module in (allocator, transfers, device):
            patch.setattr(module, "GRAIN", LEAST)
        patch.setattr(growing, "LEAST", 4 * LEAST)
        yield


def _fails(nbytes: int) -> bool:
    return bool(_library().fails(ctypes.c_size_t(nbytes)))


def _reached(reach: Callable[[Any, int], bool]) -> Callable[[Any, int], bool]:
    return lambda pages, nbytes: not _fails(nbytes) and reach(pages, nbytes)


@contextmanager
def _on_host(patch: pytest.MonkeyPatch) -> Iterator[None]:
    reserve = Budget.reserve

    def reserved(budget: Budget, nbytes: int, what: Any) -> Any:
        if _fails(nbytes):
            raise CapacityError(f"{nbytes} bytes are needed for {what}, and a test has 0 left")
        return reserve(budget, nbytes, what)

    _library()
    patch.setattr(Budget, "reserve", reserved)
    patch.setattr(growing._HostPages, "reach", _reached(growing._HostPages.reach))
    yield


@contextmanager
def _on_gpu(patch: pytest.MonkeyPatch) -> Iterator[None]:
    import cupy

    cuda, pool, mapped = cupy.cuda, cupy.get_default_memory_pool(), device.Device._allocate_mapped
    runtime, pinned = cuda.runtime, cuda.alloc_pinned_memory
    malloc, free = runtime.malloc, runtime.free

    def allocate(nbytes: int) -> Any:
        if _fails(nbytes):
            raise cuda.memory.OutOfMemoryError(nbytes, 0)
        return pool.malloc(nbytes)

    def allocate_mapped(gpu: device.Device, nbytes: int) -> Any:
        if _fails(nbytes):
            raise MemoryError(f"{nbytes} bytes of {gpu}")
        return mapped(gpu, nbytes)

    def of_driver(nbytes: int) -> int:
        if _fails(nbytes):
            raise runtime.CUDARuntimeError(hardware.OUT_OF_MEMORY)
        address = int(malloc(nbytes))
        DRIVER[address] = nbytes
        return address

    def freed(address: int) -> None:
        DRIVER.pop(address, None)
        free(address)

    def locked(nbytes: int) -> Any:
        if _fails(nbytes):
            raise runtime.CUDARuntimeError(hardware.OUT_OF_MEMORY)
        return pinned(nbytes)

    _library()
    patch.setattr(growing._DevicePages, "reach", _reached(growing._DevicePages.reach))
    patch.setattr(device.Device, "_allocate_mapped", allocate_mapped)
    patch.setattr(runtime, "malloc", of_driver)
    patch.setattr(runtime, "free", freed)
    patch.setattr(cuda, "alloc_pinned_memory", locked)
    cuda.set_allocator(allocate)
    try:
        yield
    finally:
        cuda.set_allocator(pool.malloc)


def live(kind: str = "cpu") -> int:
    """The bytes in arrays of a device, on the host those of at least 1 KiB."""
    gc.collect()
    if kind == "cpu":
        return int(ctypes.c_long.in_dll(_library(), "live").value)
    import cupy

    runtime = cupy.cuda.runtime
    for_copies = int(runtime.memPoolGetAttribute(runtime.deviceGetMemPool(0), hardware.USED))
    return int(cupy.get_default_memory_pool().used_bytes()) + growing.mapped_bytes() + sum(DRIVER.values()) + for_copies


# ---- whose allocations fail ------------------------------------------------------------------------------------------


class Here:
    """The allocations of this process.

    Parameters
    ----------
    kind : "cpu" | "cuda"
        Whose memory fails: the host's or that of a GPU.
    thread : callable
        Returns the native id of the thread whose allocations fail; 0 for all.

    Attributes
    ----------
    more : int
        Bytes that a graph may hold after failures beyond those that it holds without.
    """

    def __init__(self, kind: str = "cpu", thread: Callable[[DynamicGraph], int] = lambda graph: 0) -> None:
        self.kind, self._thread = kind, thread
        self.more = LEAST if kind == "cpu" else TABLES

    def failing(self, number: int, graph: DynamicGraph) -> AbstractContextManager[Any]:
        """Fail an allocation in a block, as `FailingAllocations`."""
        return FailingAllocations(number, self._thread(graph), self.kind)

    def live(self) -> int:
        """The bytes in use."""
        return live(self.kind)


class OnRank:
    """The allocations of a rank in a process of its own, on a GPU by all threads, on the host by the rank's.

    Parameters
    ----------
    client : Client
        Of a cluster that is `watched_workers`.
    rank : int
    kind : "cpu" | "cuda"
    """

    def __init__(self, client: Client, rank: int, kind: str) -> None:
        self._client, self._rank, self._kind = client, rank, kind
        self.more = 2 * (LEAST if kind == "cpu" else TABLES)

    @contextmanager
    def failing(self, number: int, graph: DynamicGraph) -> Iterator[Any]:
        """Fail an allocation in a block, as `FailingAllocations`; `count` and `fired` are set after it."""
        worker, thread = graph.workers[self._rank], f"mgraph-{graph.id}-{self._rank}"
        outcome = SimpleNamespace(count=0, fired=False)
        self._client.run(_begin, number, thread if self._kind == "cpu" else None, self._kind, workers=[worker])
        try:
            yield outcome
        finally:
            outcome.count, outcome.fired = self._client.run(_end, workers=[worker])[worker]

    def live(self) -> int:
        """The bytes in use on all ranks."""
        return sum(self._client.run(live, self._kind).values())


@contextmanager
def watched_workers(client: Client, kind: str) -> Iterator[None]:
    """As `watched`, in each worker process."""
    client.run(_watch, kind)
    try:
        yield
    finally:
        client.run(_unwatch)


def _watch(kind: str) -> None:
    _ENTERED.enter_context(watched(kind))


def _unwatch() -> None:
    _ENTERED.close()


def _begin(number: int, thread: str | None, kind: str) -> None:
    ids = [found.native_id for found in threading.enumerate() if found.name == thread] if thread else [0]
    FailingAllocations(number, int(ids[0] or 0), kind).__enter__()


def _end() -> tuple[int, bool]:
    allocations = FailingAllocations()
    allocations.__exit__()
    return allocations.count, allocations.fired


# ---- a call ----------------------------------------------------------------------------------------------------------


def _settled(graph: DynamicGraph, at: Here | OnRank) -> int:
    """The bytes in use, without what only a garbage collection frees, and results that the next call frees."""
    gc.collect()
    state_of(graph)
    return at.live()


def state_of(graph: DynamicGraph) -> tuple[int, ...]:
    """What a failed call must not change."""
    return graph.epoch, graph.num_vertices, graph.num_edges, graph.fingerprint()


def each_fails_once(
    make: Callable[[], DynamicGraph],
    call: Callable[[DynamicGraph], Any],
    *,
    most: int | None = None,
    rng: np.random.Generator | None = None,
    at: Here | OnRank | None = None,
    part: tuple[int, int] = (0, 1),
) -> int:
    """Fail the allocations of a call, one after another, on a graph that `make` returns.

    A call that fails raises `CapacityError` or `MemoryError` and leaves the graph as it was; one that does without the
    memory does what it should. At the end the graph holds no more memory than one on which the call never failed.

    Parameters
    ----------
    call : callable
        Returns a plain value to compare, or None.
    most : int, optional
        A random sample of this many, by `rng`; by default every allocation fails.
    at : Here or OnRank, optional
        Whose allocations fail; by default all of this process's on the host.
    part : (int, int)
        With (k, n) every n-th allocation fails, from the one with the number k.

    Returns
    -------
    int
        The allocations that failed.
    """
    at = at or Here()
    # The call without a failure: what it returns, leaves and holds.
    graph = make()
    held = _settled(graph, at)
    with at.failing(-1, graph) as allocations:
        value = call(graph)
    count, after = allocations.count, state_of(graph)
    held = _settled(graph, at) - held
    graph.close()
    drawn = None if most is None else rng.choice(count, min(most, count), replace=False)
    numbers = itertools.count(*part) if drawn is None else sorted(drawn.tolist())

    # Fail one allocation after another; a graph that a call has changed is made again.
    graph, failed = make(), 0
    before, holds = state_of(graph), _settled(graph, at)
    for number in itertools.chain(numbers, [MOST]):
        assert number <= MOST, f"a call allocates {MOST} times"
        with at.failing(number, graph) as allocations:
            try:
                answer, done = call(graph), True
            except (CapacityError, MemoryError):
                done = False
        failed += allocations.fired
        assert done or allocations.fired, f"{number}: an error without a failure"
        if not done:
            assert state_of(graph) == before, f"allocation {number} of {count} failed, and the graph is another one"
            continue
        np.testing.assert_equal(answer, value, f"allocation {number} of {count} failed, and the answer is another one")
        assert state_of(graph) == after, f"allocation {number} of {count} failed, and the call did something else"
        del answer
        if not allocations.fired:
            break
        graph.close()
        graph = make()
        holds = _settled(graph, at)
    # Memory comes back a moment later where another thread frees it.
    end = time.monotonic() + patience(5)
    while (now := _settled(graph, at) - holds) >= held + at.more and time.monotonic() < end:
        time.sleep(0.05)
    assert now < held + at.more, f"{now} bytes are held, and {held} without a failure"
    graph.close()
    return failed
