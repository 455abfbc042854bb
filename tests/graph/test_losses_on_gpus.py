"""A rank is killed or stopped while ranks on several GPUs run a program together: before, in and between kernels."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from graph_clusters import assert_clean
from steps import before, hit, hit_later
from test_failures import raises_in_time
from test_gpu import gpu_workers
from test_several_gpus import edges

from mgraph import DynamicGraph, WorkerLost

pytestmark = [pytest.mark.multigpu(2), pytest.mark.timeout(200)]

SCALE, PATIENCE = 18, 3
KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
#: the step before which the rank is hit, and the seconds from then on; a run of core numbers takes some 20 ms
STAGES = {"before a launch": ("superstep", 0), "in a kernel": ("superstep", 0.004), "while regions grow": ("grow", 0)}


def used() -> int:
    """The bytes of this worker's GPU that CuPy's pool has given out."""
    import cupy

    gc.collect()
    return int(cupy.get_default_memory_pool().used_bytes())


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        pytest.param(stage, kind, marks=() if stage == "in a kernel" else pytest.mark.slow)
        for stage, kind in product(STAGES, KINDS)
    ],
)
def test_a_rank_is_lost(stage: str, kind: str) -> None:
    (step, seconds), number = STAGES[stage], KINDS[kind]
    src, dst = edges(SCALE)
    with gpu_workers(2) as client:
        with DynamicGraph(client, 1 << SCALE, directed=False, device="cuda", patience=PATIENCE) as graph:
            assert graph.exchange == "peer"
            survivor, victim = graph.workers
            pid = client.run(os.getpid, workers=[victim])[victim]
            graph.insert(src, dst)
            if step != "grow":
                graph.core_number()
            # Hit the rank, at once or soon.
            if seconds:
                client.run(before, step, hit_later, seconds, number, workers=[victim])
            else:
                client.run(before, step, hit, number, workers=[victim])
            limit = 2.0 if kind == "killed" else PATIENCE + 2.0
            with raises_in_time(WorkerLost, f"rank 1, the worker at {victim}", limit=limit):
                for _ in range(100):  # the signal may come between two runs
                    graph.core_number()
        # The survivor has given all back, and takes another graph.
        assert_clean(client, [survivor])
        assert client.run(used, workers=[survivor])[survivor] < 1 << 20
        with DynamicGraph(client, 1 << SCALE, directed=False, workers=[survivor], device="cuda") as another:
            another.insert(src, dst)
            assert int(another.core_number().max()) > 10
            assert np.array_equal(
                another.degrees([0]), [len(np.unique(np.concatenate([dst[src == 0], src[dst == 0]])))]
            )
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
