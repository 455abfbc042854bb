"""What the tests of the NetworkX backend share: the device of its graphs, and an installation with entry points."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

import networkx as nx
import pytest


@pytest.fixture(autouse=True, scope="session")
def installed() -> None:
    """Skip where mgraph is on the path only: NetworkX finds its backends by the entry points of installed packages."""
    try:
        distribution("dask-mgraph")
    except PackageNotFoundError:
        pytest.skip("dask-mgraph is not installed, so NetworkX does not know its backend: pip install -e .")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with nx.config.backends.mgraph(device=request.param):
        yield request.param
