"""What the tests of the NetworkX backend share: the device of its graphs."""

from collections.abc import Iterator

import networkx as nx
import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with nx.config.backends.mgraph(device=request.param):
        yield request.param
