"""Coroutines for a graph's calls, with an asynchronous Dask client.

The calls of one graph run in a thread of their own, in the order in which they were awaited, since they block. The
user's event loop stays free meanwhile: it carries the messages to the workers.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar, cast

from mgraph.client.batches.pending import PendingAnswers, PendingReport
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.loop_runner import STOPPED
from mgraph.client.results.maintained import Live
from mgraph.client.results.results import VertexValues
from mgraph.errors import GraphClosed

__all__ = ["AsyncDynamicGraph", "AsyncHandle", "either", "on_its_loop", "run_in_thread"]

T = TypeVar("T")
G = TypeVar("G")
P = ParamSpec("P")

CALLS = {"durable_epoch", "offsets", "store"}  #: properties of a graph that ask the workers


class _Stopped(Exception):
    """A call was stopped because its coroutine was cancelled."""


class _Thread:
    """The thread that runs the calls of a graph in order."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "mgraph-calls")

    async def run(self, function: Callable[[], T], *, always: bool = False) -> T:
        """Run `function` in the thread and return its result.

        Cancellation ends the call as Ctrl-C does, and waits for its end: a batch is applied whole or not at all. A call
        that has not begun never begins. But a call with `always` is made in its turn all the same, and is not waited
        for.
        """
        stopped = threading.Event()
        job = self._pool.submit(copy_context().run, _stoppable, function, stopped)
        done = asyncio.wrap_future(job)
        # Retrieved, so that asyncio does not warn of it: after a second cancellation nobody waits for it.
        done.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())

        # On cancellation, drop a call that has not begun, or stop it and wait for its end.
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if always or not job.cancel():
                stopped.set()
                if not always or job.running():
                    await asyncio.wait([done])
            raise
        finally:
            del job, done  # an error's traceback refers to this frame

    def later(self, function: Callable[[], object]) -> None:
        """Run `function` in the thread, after the calls that wait for it."""
        self._pool.submit(function)


def _stoppable(function: Callable[[], T], stopped: threading.Event) -> T:
    STOPPED.set(stopped)
    try:
        return function()
    except KeyboardInterrupt:
        raise _Stopped("the call was cancelled") from None


class AsyncHandle:
    """A result, maintained result or pipeline whose methods are coroutines.

    Attributes and arguments are those of the object, which the class's documentation describes: `VertexValues`, `Live`
    or `Pipeline`. A pipeline and a maintained result are used with ``async with``. For operators, ``len()``,
    subscripts and NumPy's functions, which cannot be coroutines, see `AsyncDynamicGraph.in_thread`.
    """

    def __init__(self, target: Any, thread: _Thread) -> None:
        self._target, self._thread = target, thread

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return self._shown(getattr(self._target, name))

    def _shown(self, value: Any) -> Any:
        return _method(value, self._thread) if inspect.ismethod(value) else _handle(value, self._thread)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in dir(self._target) if not name.startswith("_"))]

    async def __aenter__(self) -> Any:
        entered = threading.Event()

        def enter() -> None:
            self._target.__enter__()
            entered.set()

        def leave() -> None:
            if entered.is_set():
                self._target.__exit__(None, None, None)

        try:
            await self._thread.run(enter)
        except asyncio.CancelledError as error:
            # A pipeline of a published graph has its lock, and other clients wait.
            if entered.is_set():
                await self.__aexit__(type(error), error, None)
            else:
                self._thread.later(leave)  # after a second cancellation it may be entered only now
            raise
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._thread.run(partial(self._target.__exit__, *exc), always=True)

    # Python would answer these without the values, and wrongly: a comparison by identity, an array of one handle.

    def __eq__(self, other: object) -> bool:
        return self is other if not self._has_values else self._refuse("==")

    def __ne__(self, other: object) -> bool:
        return self is not other if not self._has_values else self._refuse("!=")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return not self._has_values or self._refuse("bool()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self._refuse("an array")

    @property
    def _has_values(self) -> bool:
        return isinstance(self._target, VertexValues)

    def _refuse(self, operation: str) -> NoReturn:
        raise TypeError(
            f"{operation} of {self!r} cannot be awaited; in_thread of the graph runs a function in its thread, and "
            "methods, such as to_numpy(), are coroutines"
        )

    def __repr__(self) -> str:
        # The repr of a result would ask the workers for values.
        return f"<async {self._target!s}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an {type(self).__name__} cannot be pickled: it belongs to the process that made it")


class AsyncDynamicGraph(AsyncHandle):
    """A `DynamicGraph` whose calls are coroutines, for an asynchronous client.

    Enter it with ``async with``, or await it and call `close` later; before that nothing is made. Each method of
    `DynamicGraph` is a coroutine with the same arguments, and so are `durable_epoch`, `offsets` and `store`. Other
    properties have the state after the last call, and ask no worker. Results, maintained results and pipelines are
    `AsyncHandle` objects, whose methods are coroutines too.

    Notes
    -----
    The calls of one graph run one after another, in a thread of their own. Several tasks may await them. A coroutine
    that is cancelled, as by ``asyncio.timeout``, ends as a call does after Ctrl-C: it waits for a few seconds at most
    until the workers are released, and a batch is applied whole or not at all. Do not block the event loop for longer
    than the graph's `patience`: it carries the messages to the workers.

    Examples
    --------
    >>> async with Client(asynchronous=True) as client:  # doctest: +SKIP
    ...     async with DynamicGraph(client, n_vertices=4) as g:
    ...         report = await g.insert([0, 1, 2], [1, 2, 3])
    ...         ranks = await g.pagerank()
    ...         best = await ranks.top(1)
    ...         print(await g.in_thread(lambda graph: float((graph.pagerank() * 2).sum())))
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(None, _Thread())
        self._make: Callable[[], Any] | None = make

    def __await__(self) -> Generator[Any, None, AsyncDynamicGraph]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncDynamicGraph:
        if self._target is None:
            await self._thread.run(self._begin)
        return self

    def _begin(self) -> None:
        """Make the graph, in its thread. After an error or a cancellation it can be awaited again."""
        # A second task that awaits the graph comes here once the first has made it.
        if self._make is not None:
            self._target = self._make()
            self._make = None

    async def in_thread(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call ``function(graph, *args, **kwargs)`` in the graph's thread with the `DynamicGraph`, and return its
        result.

        Use it for several calls in a row with no other task's call between them, and for operators of results.
        `AsyncHandle` arguments become their objects. Do not keep the graph for use outside.
        """
        return await _method(partial(function, self._created()), self._thread)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        graph = self._created()
        if name in CALLS:
            return self._thread.run(lambda: getattr(graph, name))
        return self._shown(getattr(graph, name))

    def _created(self) -> Any:
        if self._target is None:
            raise GraphClosed('the graph is not made yet: "async with DynamicGraph(client, ...) as g", or await it')
        return self._target

    def __repr__(self) -> str:
        return "<async DynamicGraph, not made yet>" if self._target is None else super().__repr__()


def _handle(value: Any, thread: _Thread) -> Any:
    """Wrap an object that makes calls in a handle; return other values unchanged."""
    # Objects that make calls get a handle; a tuple or list, a handle per item.
    if isinstance(value, PendingReport | PendingAnswers):
        if not value.done():  # after the batches that come meanwhile
            thread.later(value.hurry)
        report: asyncio.Future[Any] = asyncio.wrap_future(value)
        # Retrieved, since nobody may wait for it: the pipeline raises the error, too.
        report.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return report
    if isinstance(value, VertexValues | Live | Pipeline):
        return AsyncHandle(value, thread)
    if type(value) in (tuple, list):
        return type(value)(_handle(item, thread) for item in value)
    if hasattr(type(value), "_opened"):  # another graph, as of `at`
        other = AsyncDynamicGraph(lambda: value)
        other._target, other._make = value, None
        return other
    return value


def _method(function: Callable[..., Any], thread: _Thread) -> Callable[..., Any]:
    """Wrap a function as a coroutine function that runs in the thread."""

    @wraps(function, assigned=("__name__", "__doc__"))
    async def call(*args: Any, **kwargs: Any) -> Any:
        plain = {name: _plain(value) for name, value in kwargs.items()}
        return _handle(await thread.run(partial(function, *map(_plain, args), **plain)), thread)

    return call


def _plain(value: Any) -> Any:
    if isinstance(value, AsyncDynamicGraph):
        return value._created()
    return value._target if isinstance(value, AsyncHandle) else value


# ---- by the kind of client -------------------------------------------------------------------------------------------


def on_its_loop(client: Any) -> bool:
    """Return True for an asynchronous Dask client on this event loop, where a blocking call would never end."""
    return getattr(client, "asynchronous", False) is True


class Maker(Protocol[P]):
    """A class method that makes a graph, for type checkers."""

    def __get__(self, graph: Any, cls: type[G], /) -> Callable[P, G]:
        """Return the method, which makes a `cls`."""
        ...


def either(function: Callable[Concatenate[Any, P], Any]) -> Maker[P]:
    """Make a class method of a function that makes a graph. With an asynchronous client it gives an
    `AsyncDynamicGraph`.
    """

    @wraps(function)
    def make(cls: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        if any(map(on_its_loop, (*args, *kwargs.values()))):
            return AsyncDynamicGraph(partial(function, cls, *args, **kwargs))
        return function(cls, *args, **kwargs)

    return cast("Maker[P]", classmethod(make))


def run_in_thread(function: Callable[[], T]) -> Coroutine[Any, Any, T]:
    """Return a coroutine that runs a blocking function."""
    return _Thread().run(function)
