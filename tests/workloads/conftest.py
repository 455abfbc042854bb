"""The commands' workers on a CPU start in a tenth of the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from graph_clusters import quick_start

from mgraph.device import gpu_count


@pytest.fixture(autouse=True, scope="package")
def workers_start_quickly() -> Iterator[None]:
    if gpu_count():  # a forked worker might have the GPUs of the process that it was forked from
        yield
        return
    with quick_start():
        yield
