"""Clusters of processes for the tests of whole graphs, and the ways of calls to them.

Tests with the marker `both_ways` run twice on a cluster: with channels, and with every call by the comms. With
`both_ways(comms="slow")` those by the comms run on request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import dask
import pytest
from dask.distributed import Client
from graph_clusters import Clusters, processes

from mgraph.client.connections import opening

FOLDER, CLUSTERS = Path(__file__).parent, Clusters()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """End the processes before tests of other folders, which do not expect what runs beside them."""
    yield
    if nextitem is None or FOLDER not in nextitem.path.parents:
        CLUSTERS.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    with closing(CLUSTERS):
        yield CLUSTERS


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the marker `both_ways` by channels and by comms, and those of `place` in both places."""
    names, mark = metafunc.fixturenames, metafunc.definition.get_closest_marker("both_ways")
    marks = pytest.mark.slow if mark is not None and mark.kwargs.get("comms") == "slow" else ()
    if "way" not in names and {"place", "client", "client3", "own_client"}.intersection(names):
        names.insert(0, "way")
    if "place" in names:
        places = [
            pytest.param("channels", "cluster", id="cluster by channels"),
            pytest.param("channels", "in process", id="in process"),
            *([pytest.param("comms", "cluster", id="cluster by comms", marks=marks)] if mark is not None else []),
        ]
        metafunc.parametrize(("way", "place"), places, indirect=True, scope="module")
    elif "way" in names and mark is not None:
        ways = ["channels", pytest.param("comms", marks=marks)]
        metafunc.parametrize("way", ways, indirect=True, scope="module")


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How calls reach the workers of this host: "channels" or "comms"."""
    name = getattr(request, "param", "channels")
    with dask.config.set({opening.OPTION: name == "channels"}):
        yield name


@pytest.fixture(scope="module")
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
