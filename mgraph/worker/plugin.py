"""Dask worker plugin: adds two comm handlers and metrics, and frees the shards at its end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import dask.config
import numpy as np
from distributed import Client, Worker, WorkerPlugin
from distributed.comm import Comm
from distributed.core import Status

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import GraphClosed, MgraphError
from mgraph.exchange import Exchange
from mgraph.exchange.comm_dispatcher import HANDLER, CommDispatcher
from mgraph.exchange.factory import make_exchange
from mgraph.protocol import Hello
from mgraph.wire import SESSION_HANDLER
from mgraph.worker.calls import Calls, Host
from mgraph.worker.inputs.dask_data import DaskData
from mgraph.worker.memory import budget_under
from mgraph.worker.sessions import prometheus
from mgraph.worker.sessions.meter import Meter
from mgraph.worker.sessions.session_table import SessionTable

__all__ = ["MgraphPlugin", "ensure"]

TEARDOWN_SECONDS = 5.0  #: how long a closing worker waits for its shards to be freed


class MgraphPlugin(WorkerPlugin):
    """Plugin that holds a worker's shards. Registering it again changes nothing.

    Attributes
    ----------
    table : SessionTable
        The sessions, one per shard.
    dispatcher : CommDispatcher
        Accepts the connections of other workers' exchanges.
    meter : Meter
        The metrics of the shards, for the dashboard.
    budget : Budget
        The memory that the process may still take.
    """

    name = "mgraph"
    idempotent = True  # registering again would replace the plugin, and with it the shards

    worker: Worker
    table: SessionTable
    dispatcher: CommDispatcher
    meter: Meter
    budget: Budget

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def setup(self, worker: Worker) -> None:
        """Register the handlers and metrics, and ignore Ctrl-C in workers that have a nanny."""
        # Create the tables.
        self.worker = worker
        self.table = SessionTable(self._calls)
        self.dispatcher = CommDispatcher(worker.contact_address, asyncio.get_running_loop(), worker.connection_args)
        self.budget = budget_under(self._memory_limit())
        self._data = DaskData(worker.data, asyncio.get_running_loop(), self.budget, self._nbytes)
        self.meter = Meter(self.table)
        self._ranks: WeakValueDictionary[tuple[str, int], Calls] = WeakValueDictionary()

        # Register the handlers and metrics.
        worker.handlers[SESSION_HANDLER] = self.mgraph_session
        worker.handlers[HANDLER] = self.mgraph_exchange
        # A heartbeat goes through the dict, and waits for metrics of GPUs. Dask would close the worker if it changed.
        worker.metrics = {**worker.metrics, **self.meter.metrics()}
        prometheus.expose(self.meter)
        if worker.nanny and threading.current_thread() is threading.main_thread():
            # A terminal sends Ctrl-C to all its processes. Otherwise it would end the workers of a LocalCluster
            # together with the interrupted call. A nanny does not end its worker by this signal.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def teardown(self, worker: Worker) -> None:
        """End all sessions and free their shards."""
        for name in (SESSION_HANDLER, HANDLER):
            worker.handlers.pop(name, None)
        ours = self.meter.metrics()
        worker.metrics = {name: metric for name, metric in worker.metrics.items() if name not in ours}
        prometheus.withdraw(self.meter)
        await self.table.close(TEARDOWN_SECONDS)
        self.dispatcher.close()

    async def mgraph_session(self, comm: Comm, hello: dict[str, Any]) -> Status:
        """Serve a session on `comm` until it closes."""
        return await self.table.accept(comm, hello)

    async def mgraph_exchange(self, comm: Comm, **hello: Any) -> Status:
        """Pass `comm` to its exchange, and hold it until that closes."""
        return await self.dispatcher.accept(comm, **hello)

    def published(self, end: str | None = None) -> list[dict[str, Any]]:
        """Return the graphs published here, after the name `end` was withdrawn."""
        return self.table.published.listed(end)

    # ---- in a task's thread ------------------------------------------------------------------------------------------

    def lent(self, graph: str, rank: int, token: str) -> dict[str, np.ndarray]:
        """Hand over the columns of a result that the rank keeps under this token."""
        calls = self._ranks.get((graph, rank))
        columns = None if calls is None else calls.lent.pop(token, None)
        if columns is None:
            raise GraphClosed(f"graph {graph}, rank {rank}: this part of a result is gone; call to_dask() again")
        return columns

    # ---- in a shard's thread -----------------------------------------------------------------------------------------

    def _calls(self, hello: Hello, aborted: Callable[[], bool]) -> Calls:
        """Create the servant of a new session."""
        host = Host(
            partial(self._open_exchange, hello),
            max(1, self.worker.state.nthreads),
            self.budget,
            partial(self._data.get, aborted=aborted),
            f"the worker at {self.worker.address}",
            lambda graph, number: self._ranks.get((graph, number)),
        )
        calls = self._ranks[hello.graph, hello.rank] = Calls(hello.graph, hello.rank, hello.size, aborted, host)
        return calls

    def _open_exchange(
        self, hello: Hello, name: str, rank: int, size: int, attempt: int, device: Device, aborted: Callable[[], bool]
    ) -> Exchange:
        key, dispatcher = (hello.graph, attempt), self.dispatcher
        return make_exchange(name, rank, size, aborted, device, dispatcher=dispatcher, key=key, patience=hello.patience)

    def _nbytes(self, key: str) -> int:
        """Return the size of a key's value in memory."""
        task = self.worker.state.tasks.get(key)
        return 0 if task is None else task.get_nbytes()

    def _memory_limit(self) -> int | None:
        """Return the bytes past which the nanny kills this process; None without a limit."""
        limit = self.worker.memory_manager.memory_limit
        share = dask.config.get("distributed.worker.memory.terminate")
        return int(limit * share) if limit and share else None


def ensure(client: Client) -> None:
    """Register the plugin with the cluster of `client`, for present and future workers.

    Takes milliseconds. Registering again has no effect.

    Raises
    ------
    MgraphError
        A worker cannot import mgraph, or cannot set up the plugin.
    """
    try:
        client.register_plugin(MgraphPlugin())
    except Exception as error:  # the scheduler passes on a worker's error as text, in a bare Exception
        raise MgraphError(
            f"mgraph's plugin cannot be registered: {error}; install the same version of mgraph on every worker"
        ) from error
