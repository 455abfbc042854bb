"""Workers whose memory is nearly full: a call that has no room says so, and the graph stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import assert_clean

from mgraph import CapacityError, DynamicGraph

N, BATCH = 100_000, 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["gpma+", "slabgraph", "graphvine"])
def test_no_call_outgrows_the_limit_of_its_worker(structure):
    rng, refused = np.random.default_rng(0), set()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="400MiB") as cluster,
        Client(cluster) as client,
    ):
        with DynamicGraph(client, N, structure=structure) as graph:
            ids = np.zeros(90_000_000, np.uint32)
            with pytest.raises(CapacityError, match="rank 0 would be sent 360000000 bytes .* memory limit leaves"):
                graph.insert(ids, ids)
            while "insert" not in refused:
                before = graph.num_edges
                try:
                    graph.insert(*rng.integers(0, N, (2, BATCH), dtype=np.uint32))
                except CapacityError:
                    refused.add("insert")
                    assert graph.num_edges == before > BATCH
            found = graph.fingerprint()
            for call in ("reorder", "rebalance", "delete_vertices"):
                try:
                    getattr(graph, call)(*([np.arange(N // 2)] if call == "delete_vertices" else []))
                except CapacityError:
                    refused.add(call)
                if call != "delete_vertices" or call in refused:
                    assert (graph.num_edges, graph.fingerprint()) == (before, found)
            assert len(refused) > 1, "nothing was nearly full"
            graph.pagerank(max_iter=2).close()
        assert_clean(client)
