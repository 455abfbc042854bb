"""Workers that Dask has paused while it computes the parts of a source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mgraph import CapacityError
from mgraph.client.inputs import ingest
from mgraph.client.inputs.ingest import Paused


class FakeClient:
    """A scheduler says what `status` its workers have; what the client knows by itself names no workers."""

    def __init__(self, **status: str) -> None:
        self.status: dict[str, str] | Exception = status
        self.scheduler = SimpleNamespace(identity=self._identity)

    def _identity(self, n_workers: int = 0) -> dict[str, Any]:
        if isinstance(self.status, Exception):
            raise self.status
        found = {name: {"status": status} for name, status in self.status.items()}
        return {"workers": found if n_workers == -1 else {}}

    def sync(self, function: Any, callback_timeout: float, **given: Any) -> Any:
        return function(**given)

    def scheduler_info(self) -> dict[str, Any]:
        return self._identity()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(ingest, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_a_worker_that_stays_paused_is_named(clock):
    client: Any = FakeClient(a="running", b="paused")
    paused = Paused(client, ["a", "b"])
    paused.check()
    clock.seconds += ingest.PAUSED_SECONDS
    paused.check()
    clock.seconds += 1
    with pytest.raises(CapacityError, match="the worker at b was paused by Dask 15 s ago"):
        paused.check()


def test_a_worker_that_goes_on_or_that_no_graph_is_on_is_not(clock):
    client: Any = FakeClient(a="paused", b="running", c="paused")
    paused = Paused(client, ["a", "b"])
    paused.check()
    clock.seconds += 10
    client.status = {"a": "running", "b": "paused", "c": "paused"}
    paused.check()
    clock.seconds += 10
    client.status = {"a": "paused", "b": "running", "c": "paused"}
    paused.check()
    clock.seconds += 10
    paused.check()


@pytest.mark.parametrize("error", [TimeoutError(), OSError("gone")])
def test_a_scheduler_that_does_not_answer_says_nothing(error, clock):
    client: Any = FakeClient(a="paused")
    paused = Paused(client, ["a"])
    paused.check()
    client.status = error
    clock.seconds += 10
    paused.check()
