"""Clusters of CPU processes for the tests of whole graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from dask.distributed import Client
from graph_clusters import Clusters, processes


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    with closing(Clusters()) as clusters:
        yield clusters


@pytest.fixture(scope="module")
def client(clusters: Clusters) -> Iterator[Client]:
    """Two worker processes; a module has a client of its own."""
    with clusters.lend(2) as client:
        yield client


@pytest.fixture(scope="module")
def client3(clusters: Clusters) -> Iterator[Client]:
    """Three worker processes."""
    with clusters.lend(3) as client:
        yield client


@pytest.fixture(scope="module", params=["cluster", "in process"])
def place(request: pytest.FixtureRequest) -> Client | None:
    """Where a graph is: on two worker processes, or, for None, in this process."""
    return request.getfixturevalue("client") if request.param == "cluster" else None


@pytest.fixture
def other(client: Client) -> Iterator[Client]:
    """Another client of the cluster of `client`."""
    with Client(client.scheduler.address) as other:
        yield other


@pytest.fixture
def own_client() -> Iterator[Client]:
    """Two worker processes for one test, which may do away with them."""
    with processes(2) as client:
        yield client
