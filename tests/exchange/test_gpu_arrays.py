"""Exchanges of device arrays, on GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from exchange_ranks import run_processes, run_threads

from mgraph.exchange import Exchange
from mgraph.exchange.ucxx_api import ucx_installed

DTYPES = ["uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64"]
SEEDS = [0, 1, 2, 3, 4, 13, 5, 7]  #: of the lengths, by dtype; with 13 an int64 array is past the limit of a message
needs_ucx = pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")
KINDS = ["tcp", "peer", pytest.param("ucx", marks=needs_ucx)]
TWO_GPUS = ["cuda:0", "cuda:1"]


def part(source: int, target: int, n: int, dtype: str) -> Any:
    import cupy

    return (cupy.arange(n) * 7 + source * 31 + target * 3).astype(dtype)


def check_device_arrays(exchange: Exchange, aborted: threading.Event | None = None) -> None:
    """All dtypes and many lengths, compared exactly, on a stream of its own; the memory is used again at once."""
    import cupy

    me, size = exchange.rank, exchange.size
    with cupy.cuda.Stream(non_blocking=True):
        for seed, dtype in zip(SEEDS, DTYPES, strict=True):
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


def check_many_steps(exchange: Exchange, aborted: threading.Event) -> None:
    """Random calls, dtypes and lengths, zero and past every limit on the way, against what each rank must have sent."""
    me, size = exchange.rank, exchange.size
    same = np.random.default_rng(11)  # the same draws on every rank
    for step in range(100):
        call, dtype = same.integers(3), DTYPES[same.integers(len(DTYPES))]
        lengths = same.integers(0, same.choice([1, 10, 5000, 1_000_000]) + 1, (size, size))
        if call == 0:
            values = same.integers(0, 10, (size, 200))
            assert exchange.allreduce(values[me], "max").tolist() == values.max(0).tolist()
        elif call == 1:
            for r, got in enumerate(exchange.allgather(part(me, step, int(lengths[0, me]), dtype))):
                assert bool((got == part(r, step, int(lengths[0, r]), dtype)).all()), (step, r)
        else:
            sent = [part(me, r + step, int(lengths[me, r]), dtype) for r in range(size)]
            for r, got in enumerate(exchange.alltoallv(sent)):
                assert got.size == lengths[r, me]
                assert bool((got == part(r, me + step, int(lengths[r, me]), dtype)).all()), (step, r)


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


def check_all(exchange: Exchange, aborted: threading.Event) -> None:
    """Both checks, by the same exchange: to start two processes takes longer than a check."""
    check_device_arrays(exchange)
    check_many_steps(exchange, aborted)


@pytest.mark.multigpu(2)
@pytest.mark.parametrize("kind", KINDS)
def test_device_arrays_between_two_gpus(kind: str) -> None:
    run_processes(kind, 2, check_all, devices=TWO_GPUS, limit=100)
