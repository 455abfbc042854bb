"""Real graphs through the user's handle, in this process and on 1, 2 and 3 others, against SciPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from graph_clusters import HERE, assert_clean, on
from scipy.sparse import csgraph

from mgraph import DynamicGraph


def ranks_in_float64(matrix: sp.csr_array) -> np.ndarray:
    n, degree = matrix.shape[0], np.asarray(matrix.sum(axis=1)).ravel()
    flow = (matrix.T @ sp.diags_array(1 / np.where(degree, degree, 1))).tocsr()
    x = np.full(n, 1 / n)
    for _ in range(200):
        x, before = 0.85 * (flow @ x) + (0.85 * x[degree == 0].sum() + 0.15) / n, x
        if np.abs(x - before).sum() < 1e-10:
            break
    return x


@pytest.mark.parametrize("size", [HERE, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2)), 3])
@pytest.mark.parametrize(("name", "directed"), [("web-NotreDame", True), ("cit-HepPh", True), ("ego-twitter", False)])
def test_bfs_and_pagerank_of_a_real_graph(client3, data_dir, name, directed, size):
    with np.load(data_dir / f"{name}.npz") as archive:
        src, dst = archive["src"], archive["dst"]
    n = int(max(src.max(), dst.max())) + 1
    ones = np.ones(len(src))
    matrix = sp.csr_array((ones, (src, dst)), shape=(n, n))
    matrix = (matrix if directed else matrix + matrix.T).tocsr()
    matrix.data[:] = 1
    with DynamicGraph(n_vertices=n, directed=directed, reverse=directed and size == 2, **on(client3, size)) as graph:
        graph.insert(src, dst)
        want = csgraph.shortest_path(matrix, method="D", unweighted=True, indices=int(src[0]))
        found = graph.bfs(int(src[0])).to_numpy()
        np.testing.assert_array_equal(found, np.where(np.isinf(want), -1, want).astype(np.int32))
        ranks = graph.pagerank()
        assert ranks.converged
        assert np.abs(ranks.to_numpy() - ranks_in_float64(matrix)).sum() < 1e-5
    assert_clean(client3)
