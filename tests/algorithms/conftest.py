"""What the algorithms' tests share: devices, structures, small constants, and a count of launches and read-backs."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from launches import watched

from mgraph.algorithms import algorithm
from mgraph.device import Device
from mgraph.exchange import world
from mgraph.structures import names


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(  # test_every_structure.py has the others
    params=[pytest.param(name, marks=() if name == "gpma+" else pytest.mark.slow) for name in names()]
)
def structure(request: pytest.FixtureRequest) -> str:
    return request.param


def on_gpu(item: pytest.Item) -> bool:
    return any(mark.name in ("gpu", "multigpu") for mark in item.iter_markers())


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What more ranks and whole pieces add does not hang on the structure: of another one, they are for the slow set.

    So are real graphs but one, of several ranks or another structure; and whole pieces on a CPU in files that have
    small ones otherwise: kernels of their own, each a second of compiling.
    """
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        ranks = params.get("size", params.get("ranks", 1))
        several, other = isinstance(ranks, int) and ranks > 1, params.get("structure", "gpma+") != "gpma+"
        large = item.name.startswith("test_real_graphs") and params.get("name") != "cit-HepPh"
        whole = params.get("pieces") == "as-is"
        alone = whole and not on_gpu(item) and "usual_constants" not in item.fixturenames
        if (other and (several or whole)) or (large and (several or other)) or alone:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks tell each other by messages on CPUs that map each other's memory, too, as on GPUs."""
    monkeypatch.setattr(world, "simulates_lanes", lambda: True)


@pytest.fixture(params=["one-memory", "separate"])
def memory(request: pytest.FixtureRequest) -> str:
    """With arrays of all ranks in one region, and with messages."""
    if request.param == "separate":
        request.getfixturevalue("separate")
    return str(request.param)


@pytest.fixture(params=["as-is", "small-pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Also with rows of more than 16 edges cut into tasks."""
    if request.param == "small-pieces":
        monkeypatch.setattr(algorithm, "HUB_DEGREE", 16)
    return request.param


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 16 edges are cut into tasks."""
    monkeypatch.setattr(algorithm, "HUB_DEGREE", 16)


@pytest.fixture(autouse=True)
def small_on_a_cpu(request: pytest.FixtureRequest) -> None:
    """On a CPU nearly all tests have these constants, so that each kernel is compiled once for a structure."""
    if not ({"pieces", "usual_constants"} & set(request.fixturenames) or on_gpu(request.node)):
        request.getfixturevalue("small")


@pytest.fixture
def usual_constants() -> None:
    """The constants are those that users have."""


@pytest.fixture(params=[1, 3])
def ranks(request: pytest.FixtureRequest, small: None) -> int:
    """The number of ranks."""
    return int(request.param)


@pytest.fixture(params=["kept", "made", "pushed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where in-edges of a directed graph come from: the graph, a sort for the call; or it pushes for want of memory."""
    if request.param == "pushed":
        module = importlib.import_module("mgraph.algorithms.centrality.pagerank.program")
        monkeypatch.setattr(module, "transposed", lambda shard: None)
    return request.param


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Launches by kernel, and read-backs."""
    counts: Counter[str] = Counter()
    to_host = Device.to_host

    def counting_to_host(array: Any) -> Any:
        counts["read-back"] += 1
        return to_host(array)

    monkeypatch.setattr(Device, "to_host", staticmethod(counting_to_host))
    with watched(lambda kernel: counts.update([kernel])):
        yield counts
