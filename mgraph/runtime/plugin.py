"""What mgraph adds to a Dask worker: two comm handlers, and the end of its shards when the worker ends."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dask.config
from distributed import Client, Worker, WorkerPlugin
from distributed.comm import Comm
from distributed.core import Status

from mgraph.device import Device
from mgraph.errors import MgraphError
from mgraph.exchange import Exchange, Hub, Loopback, NcclExchange, TcpExchange, UcxExchange, ucx_installed
from mgraph.runtime.daskdata import DaskData
from mgraph.runtime.memory import left_under, unlimited
from mgraph.runtime.meter import Meter
from mgraph.runtime.protocol import EXCHANGE_HANDLER, SESSION_HANDLER
from mgraph.runtime.servant import Program, ShardServant
from mgraph.runtime.session import SessionTable
from mgraph.runtime.shard import Shard

__all__ = ["MgraphPlugin", "ensure"]

TEARDOWN_SECONDS = 5.0


class MgraphPlugin(WorkerPlugin):
    """Holds the shards of one worker. Registered once; a second registration changes nothing.

    Parameters
    ----------
    programs, warm
        The algorithms that shards can run, and what compiles them; see `ShardServant`. Functions of modules, because
        they travel to the workers by name.

    Attributes
    ----------
    table : SessionTable
        The sessions, one for each shard.
    hub : Hub
        Where the other workers' exchanges knock.
    meter : Meter
        What the dashboard shows of the shards.
    """

    name = "mgraph"
    idempotent = True  # registering again would replace the plugin, and with it the shards

    worker: Worker
    table: SessionTable
    hub: Hub
    meter: Meter

    def __init__(self, programs: Mapping[str, Program], warm: Callable[[Shard], None]) -> None:
        self.programs, self.warm = dict(programs), warm

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def setup(self, worker: Worker) -> None:
        """Register the handlers; and leave Ctrl-C to the client and to the nanny."""
        self.worker = worker
        self.table = SessionTable(self._servant)
        self.hub = Hub(worker.contact_address, asyncio.get_running_loop(), worker.connection_args)
        self._data = DaskData(worker.data, asyncio.get_running_loop())
        self.meter = Meter(self.table)
        worker.handlers[SESSION_HANDLER] = self.mgraph_session
        worker.handlers[EXCHANGE_HANDLER] = self.mgraph_exchange
        worker.metrics.update(self.meter.metrics())
        if worker.nanny and threading.current_thread() is threading.main_thread():
            # Ctrl-C in a terminal reaches every process there, those of a LocalCluster too, which would end with the
            # call that was to be interrupted. A nanny ends its worker by other means.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def teardown(self, worker: Worker) -> None:
        """End all sessions and free their shards."""
        for name in (SESSION_HANDLER, EXCHANGE_HANDLER):
            worker.handlers.pop(name, None)
        for name in self.meter.metrics():
            worker.metrics.pop(name, None)
        await self.table.close(TEARDOWN_SECONDS)
        self.hub.close()

    async def mgraph_session(self, comm: Comm, hello: dict[str, Any]) -> Status:
        """Serve a session on `comm` until it closes."""
        return await self.table.accept(comm, hello)

    async def mgraph_exchange(self, comm: Comm, **hello: Any) -> Status:
        """Hand `comm` to the exchange that it is meant for."""
        return await self.hub.accept(comm, **hello)

    # ---- in a shard's thread -----------------------------------------------------------------------------------------

    def _servant(self, hello: dict[str, Any], aborted: Callable[[], bool]) -> ShardServant:
        graph, host = hello["graph"], Device("cpu")

        def open_exchange(
            name: str, rank: int, size: int, attempt: int, device: Device, aborted: Callable[[], bool]
        ) -> Exchange:
            if name == "loopback":
                return Loopback(aborted)
            if name == "ucx":
                return UcxExchange(rank, size, aborted, device)
            if name == "nccl":  # counts and votes are host values, which NCCL does not carry
                companion = open_exchange("ucx" if ucx_installed() else "tcp", rank, size, attempt, host, aborted)
                return NcclExchange(rank, size, aborted, device, small=companion)
            return TcpExchange(rank, size, aborted, device, hub=self.hub, key=(graph, attempt))

        threads = max(1, self.worker.state.nthreads)
        return ShardServant(
            graph,
            hello["rank"],
            hello["size"],
            aborted,
            open_exchange,
            threads,
            self._memory_left(),
            self.programs,
            self.warm,
            partial(self._data.get, aborted=aborted),
        )

    def _memory_left(self) -> Callable[[], int]:
        """What tells the bytes until the nanny kills this process for its memory; it holds no worker."""
        limit = self.worker.memory_manager.memory_limit
        share = dask.config.get("distributed.worker.memory.terminate")
        return partial(left_under, int(limit * share)) if limit and share else unlimited


def ensure(client: Client, programs: Mapping[str, Program], warm: Callable[[Shard], None]) -> None:
    """Register the plugin with the cluster of `client`, for the workers of now and later; milliseconds, also again.

    Raises
    ------
    MgraphError
        A worker cannot import mgraph, or not set the plugin up.
    """
    try:
        client.register_plugin(MgraphPlugin(programs, warm))
    except Exception as error:  # the scheduler passes a worker's error on as text, in a bare Exception
        raise MgraphError(
            f"mgraph's plugin cannot be registered: {error}; the same mgraph must be installed on every worker"
        ) from error
