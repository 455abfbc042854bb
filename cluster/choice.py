"""Choose the cluster that fits a machine and the user's options, and say why.

Starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from mgraph.device import gpu_count
from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange.choice import best_exchange

__all__ = ["Choice", "Machine", "choose", "kind_of"]

KINDS = {"auto": "auto", "cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}  #: names of devices, and what graphs call them
PROTOCOLS = ("tcp", "ucxx")
INSTALL = 'pip install "dask-mgraph[cuda13]"'


@dataclass(frozen=True)
class Machine:
    """A machine's facts, on which the choice depends.

    Attributes
    ----------
    gpus : tuple of str
        The GPUs that CuPy can use, as CUDA_VISIBLE_DEVICES names them.
    cores : int
        Cores that this process may use, control groups heeded.
    memory : int
        Bytes of host memory, control groups heeded.
    cupy, dask_cuda, distributed_ucxx : bool
        Whether the package is installed.
    """

    gpus: tuple[str, ...]
    cores: int
    memory: int
    cupy: bool = True
    dask_cuda: bool = True
    distributed_ucxx: bool = True

    @classmethod
    def here(cls) -> Machine:
        """Return the facts of this machine.

        Asks the driver for its GPUs, and imports no optional package but CuPy.
        """
        return cls(
            gpus=_visible_gpus(gpu_count()),
            cores=int(CPU_COUNT),
            memory=int(MEMORY_LIMIT),
            cupy=find_spec("cupy") is not None,
            dask_cuda=find_spec("dask_cuda") is not None,
            distributed_ucxx=find_spec("distributed_ucxx") is not None,
        )


def _visible_gpus(count: int) -> tuple[str, ...]:
    """Return the names of the visible GPUs: indices or UUIDs, in CUDA's order."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named[:count]) if len(named) >= count else tuple(map(str, range(count)))


@dataclass(frozen=True)
class Choice:
    """A cluster to start, and the reasons.

    Attributes
    ----------
    device : "cpu" | "gpu"
    workers : int
    gpus : tuple of str
        One per worker, as CUDA_VISIBLE_DEVICES names them; empty on the CPU.
    threads : int
        Dask threads per worker; a CPU worker's kernels use as many.
    protocol : "tcp" | "ucxx"
        The protocol of Dask's own messages.
    exchange : "loopback" | "peer"
        The default exchange of a graph on all of the workers.
    memory_limit : int, optional
        Bytes of host memory per worker; None leaves it to dask-cuda.
    rmm_pool : int or str, optional
    why : dict
        The reason for each choice, by name.
    """

    device: str
    workers: int
    gpus: tuple[str, ...]
    threads: int
    protocol: str
    exchange: str
    memory_limit: int | None
    rmm_pool: int | str | None
    why: dict[str, str]


def choose(
    machine: Machine,
    workers: int | None = None,
    *,
    device: str = "auto",
    gpus: Sequence[int] | None = None,
    threads: int | None = None,
    protocol: str = "tcp",
    memory_limit: int | None = None,
    rmm_pool: int | str | None = None,
) -> Choice:
    """Return the cluster that `start` would start on `machine`, with the same options and errors. O(1)."""
    # Check the options before any is used.
    _check(protocol, machine, workers=workers, threads=threads, memory_limit=memory_limit)
    use_gpus, device_why = _device(machine, kind_of(device), gpus)
    asked = "asked for"

    # Choose the workers, and the resources of each: a GPU, or an equal share of the cores and the memory.
    if use_gpus:
        if memory_limit is not None:
            raise InvalidOption(f"memory_limit={memory_limit} is for CPU workers; these run on GPUs")
        named = _named(machine, gpus)
        count = workers or len(named)
        if count > len(named):
            raise DeviceError(f"workers is {count} and this machine has {len(named)} usable GPUs; a worker needs one")
        named, share, threads = named[:count], 1, threads
        count_why, threads_why = "one per GPU", "the kernels run on the GPU, under one thread per graph"
        memory_why = "dask-cuda's default"
        pool_why = "mgraph takes its arrays from CuPy's pool; an RMM pool serves cuDF and the like"
    else:
        if rmm_pool is not None:
            raise InvalidOption(f"rmm_pool={rmm_pool!r} is for GPU workers; these run on the CPU")
        named, count = (), workers or machine.cores
        share = max(1, machine.cores // count)
        memory_limit, memory_why = (memory_limit, asked) if memory_limit else (machine.memory // count, "equal shares")
        count_why, threads_why = "one per core", "an equal share of the cores, which the kernels use"
        pool_why = "no GPUs"

    # Give each choice its reason.
    exchange, exchange_why = _exchange(use_gpus, count)
    why = {
        "device": device_why,
        "workers": asked if workers else count_why,
        "threads": asked if threads else threads_why,
        "protocol": asked if protocol != "tcp" else "Dask's own messages; a graph's data go by its exchange",
        "exchange": exchange_why,
        "memory_limit": memory_why,
        "rmm_pool": asked if rmm_pool is not None else pool_why,
    }
    kind = "gpu" if use_gpus else "cpu"
    return Choice(kind, count, named, threads or share, protocol, exchange, memory_limit, rmm_pool, why)


def kind_of(device: str) -> str:
    """Return the graphs' name for `device`: "auto", "cpu" or "cuda".

    Raises `InvalidOption` for an unknown one.
    """
    if device not in KINDS:
        raise InvalidOption(f"device {device!r} is none of {', '.join(KINDS)}")
    return KINDS[device]


def _check(protocol: str, machine: Machine, **counts: int | None) -> None:
    if protocol not in PROTOCOLS:
        raise InvalidOption(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")
    if protocol == "ucxx" and not machine.distributed_ucxx:
        raise DeviceError(f'protocol "ucxx" needs distributed-ucxx, which is not installed: {INSTALL}')
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InvalidOption(f"{name} is {value!r}; it must be a whole number above 0")


def _device(machine: Machine, device: str, gpus: Sequence[int] | None) -> tuple[bool, str]:
    """Return True if GPUs are to be used, and the reason.

    Raises `DeviceError` if GPUs were asked for and cannot be had.
    """
    if device == "cpu":
        if gpus is not None:
            raise InvalidOption(f'gpus={list(gpus)} and device="cpu" exclude each other; leave one of them out')
        return False, "asked for"
    if not machine.gpus:
        reason = "CuPy sees 0 GPUs here" if machine.cupy else "CuPy is not installed, and so 0 GPUs can be used"
    elif not machine.dask_cuda:
        reason = f"{_count(machine.gpus)} and dask-cuda, which starts GPU workers, is not installed"
    else:
        return True, _count(machine.gpus) if device == "auto" else "asked for"
    if device == "cuda" or gpus is not None:
        wanted = 'device="gpu"' if gpus is None else f"gpus={list(gpus)}"
        raise DeviceError(
            f"{wanted} was asked for: {reason}; GPU workers need the NVIDIA driver, CuPy and dask-cuda ({INSTALL}); "
            'device="cpu" needs none of them'
        )
    return False, reason


def _count(gpus: tuple[str, ...]) -> str:
    return f"CuPy sees {len(gpus)} GPU{'s' if len(gpus) != 1 else ''}"


def _named(machine: Machine, gpus: Sequence[int] | None) -> tuple[str, ...]:
    """Return the chosen GPUs, as CUDA_VISIBLE_DEVICES names them."""
    if gpus is None:
        return machine.gpus
    chosen: list[Any] = list(gpus)
    if not chosen:
        raise InvalidOption("gpus is empty; name at least one GPU, or leave it out for all")
    for index in chosen:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(machine.gpus):
            raise InvalidOption(f"gpus names {index!r}; the GPUs here are 0 to {len(machine.gpus) - 1}")
        if chosen.count(index) > 1:
            raise InvalidOption(f"gpus names {index} {chosen.count(index)} times; a GPU serves one worker")
    return tuple(machine.gpus[index] for index in chosen)


def _exchange(use_gpus: bool, workers: int) -> tuple[str, str]:
    """Return the exchange of a graph on all workers with "auto", and the reason."""
    names = [str(rank) for rank in range(workers)]
    return best_exchange("cuda" if use_gpus else "cpu", names, [{}] * workers)
