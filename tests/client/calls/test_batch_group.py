"""Which small batches share a message."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from gc_callbacks import in_allocations

from mgraph.batch import COLUMNS
from mgraph.client.calls.batch_group import SmallBatch, first_group, layout

IDS, NUMBERS = np.arange(3, dtype=np.uint32), np.arange(3)


class OnGpu:
    """A column that is on a GPU."""


def layout_of(**columns: Any) -> Any:
    return layout([{**dict.fromkeys(COLUMNS), "src": IDS, "dst": IDS, **columns}])


def test_batches_with_the_same_columns_share_one():
    every = [{}, {"op": -1}, {"op": NUMBERS}, {"weight": NUMBERS}, {"time": NUMBERS}, {"whole": True}]
    layouts = [layout_of(**columns) for columns in every]
    assert len(set(layouts)) == len(every)
    assert layout_of(weight=NUMBERS + 1) == layout_of(weight=NUMBERS)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_batch_with_a_column_on_a_gpu_goes_alone(name):
    assert layout_of(**{name: OnGpu()}) is None
    assert layout_of(n_vertices=4) is None


def test_a_group_is_taken_while_another_thread_appends():
    waiting = deque([SmallBatch(None, [], [], (), None)] * 3)
    with in_allocations(lambda: waiting.append(waiting[0])):
        sizes = [len(first_group(waiting).items) for _ in range(20)]
    assert len(waiting) > 3
    assert sizes == sorted(sizes)
