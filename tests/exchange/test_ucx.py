"""UCX alone: how device arrays get through host memory, and steps past the width of a tag."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from exchange_ranks import LIMIT
from pretend_gpu import PretendArray, PretendGpu, on_gpu

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.exchange import Exchange
from mgraph.exchange.staging import Staging
from mgraph.exchange.ucx import UcxExchange
from mgraph.exchange.ucxx_api import ucx_installed

STAGED = 1 << 10


def test_staged_bytes_are_there_after_the_stream_and_not_before() -> None:
    gpu = PretendGpu()
    staging = Staging(gpu, 3, STAGED)  # type: ignore[arg-type]
    parts = [on_gpu(np.arange(n, dtype=np.uint32)) for n in (5, 0, 256)]
    staged = staging.out(parts, [0, 2])
    assert set(staged) == {0, 2}
    assert not staged[2].any()
    gpu.synchronize()
    assert staged[0].view(np.uint32).tolist() == [0, 1, 2, 3, 4]
    assert staged[2].view(np.uint32).tolist() == list(range(256))


def test_one_array_for_all_ranks_is_copied_once() -> None:
    gpu = PretendGpu()
    staged = Staging(gpu, 4, STAGED).out([on_gpu(np.ones(9))] * 4, [0, 1, 3])  # type: ignore[arg-type]
    gpu.synchronize()
    assert gpu.copies == 1
    assert all(data.view(np.float64).tolist() == [1] * 9 for data in staged.values())


def test_what_comes_from_the_host_is_a_new_device_array() -> None:
    staging = Staging(PretendGpu(), 1, STAGED)  # type: ignore[arg-type]
    data = np.arange(10, dtype=np.int64)
    array = staging.into(data)
    data[:] = 0
    assert isinstance(array, PretendArray)
    assert array.tolist() == list(range(10))
    assert staging.into(data[:0]).size == 0


def test_without_page_locked_memory_there_is_no_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    class CUDARuntimeError(Exception):
        status = 2  # cudaErrorMemoryAllocation

    def full(nbytes: int) -> None:
        raise CUDARuntimeError

    gpu = PretendGpu()
    gpu.xp.cuda.alloc_pinned_memory, gpu.xp.cuda.runtime.CUDARuntimeError = full, CUDARuntimeError
    with pytest.raises(CapacityError, match="3072 bytes of page-locked memory"):
        Staging(gpu, 3, STAGED)  # type: ignore[arg-type]
    monkeypatch.setattr(CUDARuntimeError, "status", 700)  # another error goes on
    with pytest.raises(CUDARuntimeError):
        Staging(gpu, 3, STAGED)  # type: ignore[arg-type]


@pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")
@pytest.mark.parametrize("staged", [0, 64, STAGED])
def test_device_arrays_of_all_lengths(staged: int) -> None:
    size, lengths = 3, [0, 1, 15, 16, 17, 255, 256, 257, 5000]
    gpus = [PretendGpu() for _ in range(size)]

    def program(exchange: Exchange) -> None:
        me = exchange.rank
        for step in range(40):
            n = np.random.default_rng(step).choice(lengths, (size, size))
            dtype = ["uint32", "float64", "int8"][step % 3]
            parts = [on_gpu((np.arange(n[me, r]) + me * 3 + r + step).astype(dtype)) for r in range(size)]
            got = exchange.alltoallv(parts)
            assert got[me] is parts[me]
            for r in range(size):
                assert isinstance(got[r], PretendArray)
                assert got[r].tolist() == (np.arange(n[r, me]) + r * 3 + me + step).astype(dtype).tolist()
            mine = on_gpu(np.full(n[0, me], me, dtype))
            assert [g.tolist() for g in exchange.allgather(mine)] == [[r] * n[0, r] for r in range(size)]
            host = exchange.allreduce(np.array([me]))
            assert host.tolist() == [size * (size - 1) // 2]
            assert not isinstance(host, PretendArray)

    with ExitStack() as stack, ThreadPoolExecutor(size) as pool:
        made = [UcxExchange(r, size, lambda: False, gpus[r], staged=staged) for r in range(size)]  # type: ignore[arg-type]
        for exchange in made:
            stack.callback(exchange.close)
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        list(pool.map(program, made, timeout=LIMIT))
    assert all((gpu.copies > 0) == (staged > 0) for gpu in gpus)


@pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")
def test_the_step_may_pass_the_width_of_a_tag() -> None:
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = [UcxExchange(r, 2, lambda: False, Device("cpu")) for r in range(2)]
        for exchange in made:
            stack.callback(exchange.close)
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        for exchange in made:
            exchange._step = (1 << 32) - 2
        for step in range(5):
            sums = pool.map(lambda exchange, step=step: exchange.allreduce(np.array([step])), made, timeout=LIMIT)
            assert [total.tolist() for total in sums] == [[2 * step]] * 2
