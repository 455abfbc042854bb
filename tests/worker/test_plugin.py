"""Plugin of a worker: its metrics, and exchanges that wait as long as the graph's `patience` says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from distributed import Scheduler, Worker
from distributed.core import Status
from exchange_ranks import dispatcher_on, running_loop
from patience import patience

from mgraph.device import Device
from mgraph.errors import WorkerLost
from mgraph.exchange import Loopback, factory
from mgraph.protocol import Hello
from mgraph.worker.plugin import MgraphPlugin

CPU = Device("cpu")


def never() -> bool:
    return False


def opened(made: MgraphPlugin, name: str, patience: float) -> Any:
    return made._open_exchange(Hello("g", 0, 2, patience=patience), name, 0, 2, 3, CPU, never)


def test_a_rank_that_cannot_be_reached_is_lost_after_the_patience():
    made = MgraphPlugin()
    with running_loop() as loop, dispatcher_on(loop) as made.dispatcher:
        exchange, began = opened(made, "tcp", 0.6), time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1 at tcp://127.0.0.1:1 was not reached within 0.6 s"):
            exchange.connect([exchange.address, b"tcp://127.0.0.1:1"])
        assert 0.5 < time.monotonic() - began < patience(3)
        exchange.close()


def test_a_rank_that_does_not_come_is_lost_after_the_patience():
    made, other = MgraphPlugin(), MgraphPlugin()
    with running_loop() as loop, dispatcher_on(loop) as made.dispatcher, dispatcher_on(loop) as other.dispatcher:
        here = opened(made, "tcp", 0.6)
        there = other._open_exchange(Hello("g", 1, 2, patience=0.6), "tcp", 1, 2, 3, CPU, never)
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1 at .* did not connect within 0.6 s"):
            here.connect([here.address, there.address])
        assert 0.5 < time.monotonic() - began < patience(3)
        here.close()
        there.close()


@pytest.mark.parametrize("name", ["loopback", "peer", "tcp", "ucx"])
def test_every_exchange_has_the_patience_of_the_graph(name, monkeypatch):
    """The classes are replaced, since some need a GPU: the test looks at their arguments."""
    options_of: dict[str, dict[str, Any]] = {}

    def recorder(kind: str) -> Callable[..., str]:
        def make(*args: Any, **options: Any) -> str:
            options_of[kind] = options
            return kind

        return make

    for kind in ("PeerExchange", "SocketExchange", "UcxExchange"):
        monkeypatch.setattr(factory, kind, recorder(kind))
    made = MgraphPlugin()
    made.dispatcher = object()  # type: ignore[assignment]
    exchange = opened(made, name, 7.5)
    if name == "loopback":
        assert isinstance(exchange, Loopback)
        return
    assert list(options_of) == ["SocketExchange" if name == "tcp" else f"{name.capitalize()}Exchange"]
    assert options_of[exchange]["patience"] == 7.5
    if name == "tcp":
        assert options_of[exchange]["key"] == ("g", 3)


def test_a_heartbeat_that_waits_for_a_metric_outlives_the_plugin():
    """Dask's metrics of GPUs are awaited: a heartbeat may be among them when the plugin comes or goes."""

    async def main() -> None:
        asked, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(worker: Worker) -> int:
            asked.set()
            await goes_on.wait()
            return 1

        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler,
            Worker(scheduler.address, host="127.0.0.1", nthreads=1, heartbeat_interval="1h") as worker,
        ):
            worker.metrics = {"slow": slow, **worker.metrics}
            for change in (lambda: worker.plugin_add(MgraphPlugin()), lambda: worker.plugin_remove("mgraph")):
                asked.clear()
                goes_on.clear()
                beat = asyncio.create_task(worker.heartbeat())
                await asked.wait()
                answer = await change()
                assert answer["status"] == "OK", answer
                goes_on.set()
                await beat
                assert worker.status == Status.running
                assert ("mgraph" in await worker.get_metrics()) == ("mgraph" in worker.plugins)

    asyncio.run(asyncio.wait_for(main(), patience(60)))
