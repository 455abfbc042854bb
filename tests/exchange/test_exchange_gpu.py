"""Exchanges of device arrays, on GPUs."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from exchange_programs import table, timings
from exchange_ranks import run_processes, run_threads

from mgraph.exchange import Exchange
from mgraph.exchange.ucxx_api import ucx_installed

DTYPES = ["uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64"]
needs_ucx = pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")
KINDS = ["tcp", pytest.param("ucx", marks=needs_ucx)]


def part(source: int, target: int, n: int, dtype: str) -> Any:
    import cupy

    return (cupy.arange(n) * 7 + source * 31 + target * 3).astype(dtype)


def check_device_arrays(exchange: Exchange, aborted: threading.Event | None = None) -> None:
    """All dtypes and many lengths, compared exactly, on a stream of its own; the memory is used again at once."""
    import cupy

    me, size = exchange.rank, exchange.size
    with cupy.cuda.Stream(non_blocking=True):
        for seed, dtype in enumerate(DTYPES * 2):
            lengths = np.random.default_rng(seed).integers(0, 10 ** (1 + seed % 7), (size, size))
            lengths[0, -1] = 0
            parts = [part(me, r, int(lengths[me, r]), dtype) for r in range(size)]
            got = exchange.alltoallv(parts)
            for own in parts:
                if own is not got[me]:
                    own.fill(99)  # the sender may write to it as soon as the call is over
            assert got[me] is parts[me]
            for r in range(size):
                assert isinstance(got[r], cupy.ndarray)
                assert got[r].device.id == cupy.cuda.Device().id
                assert got[r].dtype == dtype
                assert bool((got[r] == part(r, me, int(lengths[r, me]), dtype)).all())
            gathered = exchange.allgather(part(me, 0, int(lengths[0, me]), dtype))
            for r in range(size):
                assert bool((gathered[r] == part(r, 0, int(lengths[0, r]), dtype)).all())
            assert exchange.allreduce(np.array([me + 1.5])).tolist() == [sum(r + 1.5 for r in range(size))]


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_device_arrays_of_ranks_that_share_a_gpu(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> None:
        import cupy

        cupy.cuda.Device(0).use()
        check_device_arrays(exchange)

    run_threads(kind, size, program, device="cuda:0")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_device_arrays_of_processes_that_share_a_gpu(kind: str) -> None:
    run_processes(kind, 2, check_device_arrays, devices=["cuda:0", "cuda:0"], limit=100)


@pytest.mark.multigpu(2)
@pytest.mark.parametrize("kind", KINDS)
def test_device_arrays_between_two_gpus(kind: str) -> None:
    run_processes(kind, 2, check_device_arrays, devices=["cuda:0", "cuda:1"], limit=100)


@pytest.mark.multigpu(2)
@pytest.mark.parametrize("kind", KINDS)
def test_latency_and_bandwidth_between_two_gpus(kind: str) -> None:
    sizes = [8, 1 << 20, 256 << 20]
    times = run_processes(
        kind, 2, partial(timings, sizes=sizes, device="cuda"), devices=["cuda:0", "cuda:1"], limit=100
    )
    print(table(f"{kind}, 2 GPUs", times, 2))
    if kind == "ucx":  # through host memory it would be slower than this by far
        assert all((256 << 20) / rank[256 << 20] > 20e9 for rank in times), "UCX does not reach GPU memory directly"
