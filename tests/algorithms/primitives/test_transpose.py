"""In-edges made for a call: against SciPy, on any ranges; and refused where one rank has no room."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from graphs import random_graph, shapes
from spmd import FakeShard, Graph, cut, shards

from mgraph.algorithms.primitives.transpose import Rows, transposed
from mgraph.device import Device

CUTS = [(1, True), (2, True), (3, True), (3, False)]


def on_all(made: Sequence[FakeShard]) -> list[Rows | None]:
    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(transposed, made))


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_rows_are_those_of_the_transposed_matrix(structure: str, device: str, size: int, even: bool) -> None:
    graphs: list[Graph] = [*shapes(), random_graph(1, 300, 3000), random_graph(2, 300, 3000, skew=True)]
    for graph in graphs:
        if not graph.directed:
            continue
        want = graph.matrix().T.tocsr()
        want.sort_indices()
        made = shards(graph, cut(graph.n, size, even), structure, device=device)
        for shard, rows in zip(made, on_all(made), strict=True):
            assert rows is not None
            offsets, ids = Device.to_host(rows.offsets), Device.to_host(rows.ids)
            assert (offsets.dtype, ids.dtype, rows.num_edges) == (np.int64, np.uint32, len(ids))
            np.testing.assert_array_equal(offsets, want.indptr[shard.lo : shard.hi + 1] - want.indptr[shard.lo])
            np.testing.assert_array_equal(ids, want.indices[want.indptr[shard.lo] : want.indptr[shard.hi]])


class Full(Device):
    """A device that has room for the last rank's out-edges and not for its in-edges."""

    @property
    def memory_free(self) -> int:
        return 10_000


@pytest.mark.parametrize("size", [1, 3])
def test_one_rank_without_room_stops_all(size: int) -> None:
    n, m = 300, 600  # all edges lead to the last rank's vertices
    rng = np.random.default_rng(3)
    keys = rng.choice(n * n // 3, m, replace=False)
    graph = Graph(n, (keys // (n // 3)).astype(np.uint32), (2 * n // 3 + keys % (n // 3)).astype(np.uint32))
    made: list[Any] = shards(graph, cut(n, size))
    assert size == 1 or made[-1].out_edges.num_edges * 32 < 10_000 < m * 32
    made[-1].device = Full("cpu", 0, threads=1)
    assert on_all(made) == [None] * size
