"""Whatever takes memory takes it from a budget: what NumPy and CuPy took is compared with what was granted."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from graph_model import random_batch
from ledger import Ledger
from ranks import Ranks

from mgraph.budget import GRAIN
from mgraph.device import Device
from mgraph.structures import names

N, MIB = 50_000, 1 << 20
SLACK = 5 * MIB // 4  #: what is not worth asking for, in all: two bytes an operation are more


@contextmanager
def nothing_bypasses(what: str, ranks: int = 1) -> Iterator[Ledger]:
    """What is done in here is granted, but for `SLACK` bytes a rank at a time."""
    with Ledger() as ledger:
        yield ledger
    gap, where = ledger.gaps[0]
    assert gap < ranks * SLACK, f"{what}: {gap} bytes more than were granted, between {where}"


def good(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def test_the_ledger_sees_what_nobody_asked_for():
    device = Device()
    with Ledger() as ledger:
        kept = device.empty(8 * MIB, np.uint8)
        int((kept > 0).sum())  # a mask of 8 MiB, which is gone by the next grant
        device.empty(2 * MIB, np.uint8)
    assert 8 * MIB <= ledger.gaps[0][0] < 9 * MIB
    assert (ledger.granted, ledger.peak) == (2 * 10 * MIB, 2 * 8 * MIB)  # as a reservation, and as an array


def test_the_ledger_is_not_misled_by_threads():
    def work() -> None:
        for _ in range(100):
            arrays = [Device().empty(nbytes, np.uint8) for nbytes in (8 * MIB, GRAIN - 1)]
            arrays.clear()

    threads = [threading.Thread(target=work) for _ in range(3)]
    with Ledger() as ledger:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ledger.granted == 3 * 100 * (2 * 8 * MIB + GRAIN - 1)
    assert ledger.gaps[0][0] < GRAIN - 1


SLOW = [pytest.param(name, marks=() if name == "gpma+" else pytest.mark.slow) for name in names()]


@pytest.mark.parametrize("structure", SLOW)
@pytest.mark.parametrize(
    ("size", "kind"),
    [
        pytest.param(1, {"weighted": True, "reverse": True}, marks=pytest.mark.slow),
        pytest.param(1, {"weighted": True, "directed": False}, marks=pytest.mark.slow),
        pytest.param(1, {}, marks=pytest.mark.slow),
        pytest.param(2, {"weighted": True, "reverse": True}, marks=pytest.mark.slow),
    ],
    ids=["reverse", "undirected", "plain", "two ranks"],
)
def test_no_call_takes_memory_that_was_not_granted(structure, size, kind):
    check_calls(structure, size, kind, 1_500_000)


def test_no_call_takes_memory_that_was_not_granted_for_fewer_operations():
    """Where four bytes per operation are more than `SLACK` on each of two ranks."""
    check_calls("gpma+", 2, {"weighted": True, "reverse": True}, 750_000)


def check_calls(structure: str, size: int, kind: dict[str, Any], n: int) -> None:
    """Make every call with `n` operations."""
    rng = np.random.default_rng(1)
    ranks = Ranks([N * rank // size for rank in range(size + 1)], structure=structure, **kind)
    weighted, epoch = kind.get("weighted", False), 0
    for deletes in (0, 0.25):
        batch, epoch = random_batch(rng, N, n, weighted, deletes), epoch + 1
        with nothing_bypasses(f"update {epoch}", size) as ledger:
            good(ranks.update(batch, epoch))
        assert ledger.granted > 20 * n
    ranks.held = {f"part {i}": random_batch(rng, N, n // size, weighted, 0.25) for i in range(2 * size)}
    sources = [{"kind": "keys", "parts": list(ranks.held)[rank::size], "names": {}} for rank in range(size)]
    with nothing_bypasses("ingest", size):
        good(ranks.ingest(sources, epoch + 1))
    for move in ("rebalance", "reorder", "reorder"):
        with nothing_bypasses(move, size):
            good(ranks.call(move))
    epoch = ranks.shards[0].epoch
    with nothing_bypasses("add_vertices", size):
        good(ranks.call("add_vertices", epoch=epoch + 1, n_vertices=N + n * size))
    with nothing_bypasses("fingerprint", size):
        good(ranks.call("fingerprint"))
    check_reads(ranks, rng, n)
    with nothing_bypasses("delete_vertices", size):
        good(ranks.call("delete_vertices", epoch=epoch + 2, ids=np.arange(N // 4, dtype=np.uint32)))


def check_reads(ranks: Ranks, rng: np.random.Generator, n: int) -> None:
    """Reads and algorithms."""
    shards, m = ranks.shards, n // ranks.size
    now = {"generation": shards[0].generation, "starts": list(shards[0].partition.starts)}
    ids = [{"ids": np.arange(shard.lo, shard.hi, dtype=np.uint32)} for shard in shards]
    src = [rng.integers(shard.lo, shard.hi, m).astype(np.uint32) for shard in shards]
    pairs = [{"src": own, "dst": rng.integers(0, N, m).astype(np.uint32)} for own in src]
    search = {"name": "bfs", "result": "hops", "args": {"source": 0, "predecessors": True}}
    ranking = {"name": "pagerank", "result": "ranks", "args": {"max_iter": 10}}
    components = {"name": "connected_components", "result": "components", "args": {}}
    # The texts of kernels take a megabyte while they are compiled.
    good(ranks.call("run", None, **search, generation=now["generation"]))
    for method, shares, args in (
        ("neighbors", None, {**now, "ids": None}),
        ("neighbors", ids, now),
        ("degrees", ids, now),
        ("has_edges", pairs, now),
        *(("run", None, {**run, "generation": now["generation"]}) for run in (search, ranking, components)),
        ("fetch", None, {"result": "hops", "column": None}),
        ("top", None, {"result": "hops", "k": n}),
    ):
        with nothing_bypasses(method, ranks.size):
            good(ranks.call(method, shares, **args))


@pytest.mark.gpu
@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize(
    "kind", [{"weighted": True, "reverse": True}, {"directed": False}], ids=["reverse", "undirected"]
)
def test_no_call_takes_gpu_memory_that_was_not_asked_for(structure, kind, monkeypatch):
    """CuPy's pool hands out `GRAIN` bytes and more only inside of `Device.empty` and `Device.taking`."""
    rng, n, weighted = np.random.default_rng(2), 1_500_000, "weighted" in kind
    ranks, bypassed = Ranks([0, N], device="cuda", structure=structure, **kind), Bypassed(monkeypatch)
    servant = ranks.servants[0]  # hooks are of a thread: this one

    def call(method: str, **args: Any) -> None:
        with bypassed.hook:
            servant.find(method, 0)(**args)
        assert not bypassed.found, f"{method}: {bypassed.found[0]}"

    for epoch in (1, 2):
        batch = random_batch(rng, N, n, weighted)
        call("update", epoch=epoch, src=batch.src, dst=batch.dst, weight=batch.weight, op=batch.op)
    for move in ("rebalance", "reorder", "reorder"):
        call(move)
    call("add_vertices", epoch=3, n_vertices=N + n)
    call("fingerprint")
    now = {"starts": [0, N + n], "generation": 2}
    call("neighbors", **now, ids=None)
    call("has_edges", **now, src=batch.src, dst=batch.dst)
    call("run", name="bfs", result="hops", generation=2, args={"source": 0, "predecessors": True})
    call("top", result="hops", k=1000)
    call("run", name="pagerank", result="ranks", generation=2, args={"max_iter": 10})
    call("run", name="connected_components", result="components", generation=2, args={})
    call("delete_vertices", epoch=4, ids=np.arange(N // 4, dtype=np.uint32))


class Bypassed:
    """Where CuPy's pool was asked for `GRAIN` bytes or more and no budget was: stacks, in `found`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import cupy

        self.found: list[str] = []
        self._asked = 0
        empty, taking, found = Device.empty, Device.taking, self.found

        def asked_empty(device: Device, n: int, dtype: Any) -> Any:
            with self._asking():
                return empty(device, n, dtype)

        @contextmanager
        def asked_taking(device: Device, nbytes: int, what: Any) -> Iterator[None]:
            with taking(device, nbytes, what), self._asking():
                yield

        class Hook(cupy.cuda.MemoryHook):
            name = "bypassed"

            def malloc_preprocess(hook, **given: int) -> None:
                if given["mem_size"] > GRAIN and not self._asked:
                    found.append("".join(traceback.format_stack(limit=8)))

        monkeypatch.setattr(Device, "empty", asked_empty)
        monkeypatch.setattr(Device, "taking", asked_taking)
        self.hook = Hook()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1
