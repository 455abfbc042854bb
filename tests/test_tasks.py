"""Parts of a Dask collection become batches in Dask's tasks, within the budget of the worker that runs them."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mgraph import CapacityError, EdgeBatch, InvalidBatch, ReadError
from mgraph import tasks as mgraph_tasks
from mgraph.batch import ALL
from mgraph.budget import Budget
from mgraph.tables.names import Names
from mgraph.tasks import batch_of

MIB, N = 1 << 20, 300_000


def on_a_worker(monkeypatch: pytest.MonkeyPatch, budget: Budget | None) -> None:
    """Tasks of this process run on a worker with this budget, or on one without the plugin."""
    plugins = {} if budget is None else {"mgraph": SimpleNamespace(budget=budget)}
    monkeypatch.setattr(mgraph_tasks, "get_worker", lambda: SimpleNamespace(plugins=plugins))


def columns(ids: Any, weight: Any = None, op: Any = None) -> dict[str, Any]:
    """Random columns of these dtypes."""
    rng = np.random.default_rng(1)
    made = {name: rng.integers(0, 100, N).astype(ids) for name in ("src", "dst")}
    if weight is not None:
        made["weight"] = rng.random(N).astype(weight)
    if op is not None:
        made["op"] = np.where(rng.integers(0, 2, N), 1, -1).astype(op)
    return made


PARTS = {
    "int64": columns(np.int64, np.float64, np.int64),
    "uint32, as a batch has them": columns(np.uint32, np.float32, np.int8),
    "uint8": columns(np.uint8, np.float16, np.int8),
    "int32": columns(np.int32, np.float64),
    "a frame": pd.DataFrame(columns(np.int64, np.float64)),
    "a tuple": tuple(columns(np.int64, np.float64).values()),
    "lists": tuple(column.tolist() for column in columns(np.int64, np.float64).values()),
    "a batch": EdgeBatch(**columns(np.uint32, np.float32)),
    "one op": (*columns(np.int64).values(), None, -1),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_takes_no_more_than_is_reserved_for_it(name, monkeypatch):
    reserved, part = [], PARTS[name]

    class Noted(Budget):
        def reserve(self, nbytes: int, what: Any) -> Any:
            reserved.append(nbytes)
            return super().reserve(nbytes, what)

    on_a_worker(monkeypatch, Noted())
    tracemalloc.start(1)
    try:
        base = tracemalloc.get_traced_memory()[0]
        batch = batch_of(part, ALL)
        taken = tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()
    assert taken < sum(reserved) + MIB // 16
    assert sum(reserved) == {"a batch": 0, "uint32, as a batch has them": 4 * N}.get(name, sum(reserved))
    first = part[0] if isinstance(part, tuple) else part.src if isinstance(part, EdgeBatch) else part["src"]
    np.testing.assert_array_equal(batch.src, first)


def test_a_part_for_which_there_is_no_room_is_refused(monkeypatch):
    on_a_worker(monkeypatch, Budget(lambda: MIB))
    with pytest.raises(CapacityError, match=rf"{9 * 2 * N} bytes are needed for a part .* a dict, .* leaves {MIB}"):
        batch_of({"from": np.zeros(N, np.int64), "to": np.zeros(N, np.int64)}, Names("from", "to"))
    assert batch_of(PARTS["a batch"], ALL) is PARTS["a batch"]  # which takes nothing


def test_what_is_on_a_gpu_takes_no_host_memory(monkeypatch):
    class OnGpu(np.ndarray):
        __cuda_array_interface__ = None

    on_a_worker(monkeypatch, Budget(lambda: 0))
    part = {name: column.view(OnGpu) for name, column in columns(np.uint32).items()}
    monkeypatch.setattr(mgraph_tasks.EdgeBatch, "of", lambda *columns: "a batch")
    assert batch_of(part, ALL) == "a batch"


@pytest.mark.parametrize("part", [7, (1,), None, "edges.npz", {"source": [1]}])
def test_what_is_no_part_is_refused_as_ever(part, monkeypatch):
    on_a_worker(monkeypatch, Budget(lambda: 1000))
    with pytest.raises((InvalidBatch, ReadError)):
        batch_of(part, ALL)


def test_a_worker_without_the_plugin_has_no_limit(monkeypatch):
    on_a_worker(monkeypatch, None)
    assert len(batch_of(PARTS["int64"], ALL)) == N
