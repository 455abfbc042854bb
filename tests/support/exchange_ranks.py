"""Ranks to test exchanges with: threads of one process, or processes, each with an exchange that is connected."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed.core import Server
from distributed.security import Security
from patience import patience
from pretend_ipc import IpcBuffersOfHostMemory

from mgraph.device import Device
from mgraph.exchange import Exchange, Loopback
from mgraph.exchange.comm_dispatcher import HANDLER, CommDispatcher
from mgraph.exchange.grouped import GroupedExchange
from mgraph.exchange.groups import Groups
from mgraph.exchange.peer import PeerExchange
from mgraph.exchange.sockets import SocketExchange
from mgraph.exchange.tcp import TcpExchange
from mgraph.exchange.ucx import UcxExchange

KEY = ("graph", 0)
LIMIT = 60  #: seconds after which a rank counts as hanging


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own, and has no task left at its end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="exchange-loop")
    thread.start()
    try:
        yield loop
        left = asyncio.run_coroutine_threadsafe(_tasks_left(), loop).result(LIMIT)
        assert not left, f"tasks left on the event loop: {left}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT)
        loop.close()


async def _tasks_left() -> list[str]:
    for _ in range(100):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            break
        await asyncio.sleep(0.01)
    return [repr(task) for task in left]


@contextmanager
def dispatcher_on(
    loop: asyncio.AbstractEventLoop,
    listen: str = "tcp://127.0.0.1:0",
    deserialize: bool = True,
    security: Security | None = None,
) -> Iterator[CommDispatcher]:
    """A dispatcher behind a Dask server, as beside a worker; holds no comm and no exchange at its end."""

    async def start() -> tuple[Server, CommDispatcher]:
        connection_args = security.get_connection_args("worker") if security else {}
        server = Server({}, deserialize=deserialize, connection_args=connection_args, needs_workdir=False)
        await server.listen(listen, **(security.get_listen_args("worker") if security else {}))
        dispatcher = CommDispatcher(server.address, loop, connection_args, deserialize=deserialize)
        server.handlers[HANDLER] = dispatcher.accept
        return server, dispatcher

    async def stop(server: Server) -> list[str]:
        for _ in range(100):
            if not server._comms:
                break
            await asyncio.sleep(0.01)
        left = [repr(comm) for comm in server._comms]
        await server.close()
        return left

    server, dispatcher = asyncio.run_coroutine_threadsafe(start(), loop).result(LIMIT)
    try:
        yield dispatcher
        assert len(dispatcher) == 0, "exchanges left in the dispatcher"
    finally:
        left = asyncio.run_coroutine_threadsafe(stop(server), loop).result(LIMIT)
        assert not left, f"comms left on the server: {left}"


@contextmanager
def ranks(
    kind: str, size: int, aborted: Sequence[Callable[[], bool]], device: str = "cpu", **options: Any
) -> Iterator[list[Exchange]]:
    """The unconnected exchanges of `size` ranks in this process. Kinds: see `_make`."""
    with ExitStack() as stack:
        if needs_dispatcher(kind):
            loop = stack.enter_context(running_loop())
            listen = "inproc://" if kind == "inproc" else "tcp://127.0.0.1:0"
            dispatchers = [stack.enter_context(dispatcher_on(loop, listen)) for _ in range(size)]
        else:
            dispatchers = [None] * size
        made = []
        for rank in range(size):
            made.append(_make(kind, rank, size, aborted[rank], device, dispatchers[rank], options))
            stack.callback(made[-1].close)
        yield made


def needs_dispatcher(kind: str) -> bool:
    """Return True if an exchange of this kind goes over Dask's comms."""
    return kind in ("tcp", "comms", "inproc") or kind.startswith("groups")


def _make(
    kind: str, rank: int, size: int, aborted: Any, device: str, dispatcher: CommDispatcher | None, options: Any
) -> Exchange:
    """An exchange by its kind.

    loopback, tcp, comms (tcp without its sockets), inproc (Dask's comms within the process), peer, buffers (peer
    with the buffers of a GPU, in host memory), groups-001 (with the group of each rank; tcp in between), ucx,
    ucx-tcp (UCX without shared memory).
    """
    where = Device.of(device)
    if kind == "loopback":
        return Loopback(aborted)
    if kind in ("tcp", "comms", "inproc"):
        assert dispatcher is not None
        make = TcpExchange if kind == "comms" else SocketExchange
        return make(rank, size, aborted, where, dispatcher=dispatcher, key=KEY, **options)
    if kind.startswith("groups"):
        groups = Groups(tuple(map(int, kind.partition("-")[2])), "tcp")

        def open_part(name: str, ranks: Sequence[int], pair: str) -> Exchange:
            if name == "loopback":
                return Loopback(aborted)
            some = {"rank": ranks.index(rank), "size": len(ranks), "aborted": aborted, "device": where, "names": ranks}
            if name == "peer":
                return PeerExchange(**some, **options)
            return SocketExchange(**some, dispatcher=dispatcher, key=(KEY[0] + pair, KEY[1]), **options)

        return GroupedExchange(rank, size, aborted, where, groups=groups, open_part=open_part)
    if kind == "peer":
        return PeerExchange(rank, size, aborted, where, **options)
    if kind == "buffers":
        return IpcBuffersOfHostMemory(rank, size, aborted, **options)
    options = {name: value for name, value in options.items() if name != "part_limit"}  # UCX splits by itself
    config = {"TLS": "tcp"} if kind == "ucx-tcp" else None
    return UcxExchange(rank, size, aborted, where, config=config, **options)


def run_threads(kind: str, size: int, program: Callable[[Exchange], Any], **options: Any) -> list[Any]:
    """What `program` returned on each rank, in rank order; one thread a rank."""

    def body(exchange: Exchange) -> Any:
        exchange.connect(addresses)
        return program(exchange)

    with ranks(kind, size, [lambda: False] * size, **options) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        return [future.result(LIMIT) for future in [pool.submit(body, exchange) for exchange in made]]


def _child(kind: str, rank: int, size: int, device: str, program: Any, pipe: Any, options: dict[str, Any]) -> None:
    try:
        aborted = threading.Event()
        Device.of(device).use()
        with ExitStack() as stack:
            dispatcher = None
            if needs_dispatcher(kind):
                dispatcher = stack.enter_context(dispatcher_on(stack.enter_context(running_loop())))
            exchange = _make(kind, rank, size, aborted.is_set, device, dispatcher, options)
            stack.callback(exchange.close)
            pipe.send(exchange.address)
            exchange.connect(pipe.recv())
            result = program(exchange, aborted)
        pipe.send(("done", result))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


def run_processes(
    kind: str,
    size: int,
    program: Callable[[Exchange, threading.Event], Any],
    devices: Sequence[str] | None = None,
    lost: Sequence[int] = (),
    limit: float = LIMIT,
    **options: Any,
) -> list[Any]:
    """What `program` returned on each rank, one process a rank; None for the ranks in `lost`, which may die."""
    # On CPUs they are forked from a process that has imported mgraph, in a tenth of the time.
    start = multiprocessing.get_context("spawn" if devices else "forkserver")
    start.set_forkserver_preload(["mgraph.worker.plugin", "exchange_ranks"])
    pipes, processes = [], []
    try:
        for rank in range(size):
            here, there = start.Pipe()
            args = (kind, rank, size, devices[rank] if devices else "cpu", program, there, options)
            processes.append(start.Process(target=_child, args=args, daemon=True))
            processes[-1].start()
            pipes.append(here)
        addresses = [_answer(pipe, rank, limit) for rank, pipe in enumerate(pipes)]
        for pipe in pipes:
            pipe.send(addresses)
        return [None if rank in lost else _answer(pipe, rank, limit) for rank, pipe in enumerate(pipes)]
    finally:
        for process in processes:
            process.kill()
            process.join(10)
        for pipe in pipes:
            pipe.close()


def _answer(pipe: Any, rank: int, limit: float) -> Any:
    limit = patience(limit)
    assert pipe.poll(limit), f"rank {rank} said nothing for {limit} s"
    answer = pipe.recv()
    if isinstance(answer, tuple):
        assert answer[0] == "done", f"rank {rank} failed:\n{answer[1]}"
        return answer[1]
    return answer
