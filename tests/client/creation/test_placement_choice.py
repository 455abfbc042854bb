"""Which workers hold a graph, asked of a real scheduler."""

from __future__ import annotations

import dask
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD

from mgraph.client.creation.placement import choose_workers


@pytest.fixture
def client():
    """A client that updates what it knows of the scheduler a thousand times a second, instead of every two."""
    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}),
        LocalCluster(n_workers=2, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_no_worker_is_missed_while_the_client_updates_what_it_knows(client):
    """Its updates ask for no workers, and used to overwrite the answer that names them all."""
    for _ in range(1000):
        assert len(choose_workers(client, None)) == 2
