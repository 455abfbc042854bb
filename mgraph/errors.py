"""Errors that mgraph raises. All derive from `MgraphError`.

Each message names the wrong value and the limit, and the rank and the epoch where they matter. Errors are sent by name
and fields, so every class takes its message as the only positional argument. Code decides by fields, since messages are
for people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

__all__ = [
    "Aborted",
    "CapacityError",
    "DeviceError",
    "ExchangeError",
    "GraphClosed",
    "GraphLost",
    "InvalidBatch",
    "InvalidOption",
    "MgraphError",
    "NoPath",
    "ReadError",
    "StoreError",
    "UnknownVertex",
    "WorkerLost",
]


class MgraphError(Exception):
    """Base class of the errors that mgraph raises on purpose.

    Attributes
    ----------
    during : int or None
        The epoch that the failed call would have committed; None if it commits none, or was not sent.
    vertices : tuple of int
        The users' ids of the vertices in the message, if `about` made it.
    rank : int or None
        The rank that raised the error, if the message names it.
    done : int64[k, 6] or None
        For a message of several batches, the counts of the batches committed before the failed one.
    """

    during: int | None = None
    vertices: tuple[int, ...] = ()
    rank: int | None = None
    done: Any = None
    _text = ""

    @classmethod
    def about(cls, text: str, *vertices: int) -> Self:
        """Return an error with the message `text`, formatted with `vertices`."""
        error = cls(text.format(*vertices))
        error._text, error.vertices = text, vertices
        return error

    def named(self, names: Callable[[Any], Any]) -> Self:
        """Return the error with names instead of ids; ``names(ids)`` returns an array."""
        return type(self)(self._text.format(*map(repr, names(list(self.vertices)).tolist())))


class InvalidBatch(MgraphError, ValueError):
    """Invalid edge batch: unequal lengths, wrong dtypes, invalid vertex ids, NaN weights or unknown ops."""


class UnknownVertex(MgraphError, LookupError):
    """Vertex id outside ``0 .. num_vertices - 1``, or an unknown key."""

    @classmethod
    def past(cls, what: str, vertex: int, n_vertices: int) -> Self:
        """Return the error for an id out of range."""
        if n_vertices < 2:
            return cls(f"{what} is {vertex}; the graph has {'1 vertex, 0' if n_vertices else '0 vertices'}")
        return cls(f"{what} is {vertex}; the graph has {n_vertices} vertices, 0 to {n_vertices - 1}")


class InvalidOption(MgraphError, ValueError):
    """Argument with an unknown name, or out of its range."""


class CapacityError(MgraphError, RuntimeError):
    """Too little memory for an operation, or more vertices than 32-bit ids allow. Nothing was changed.

    Not derived from `MemoryError`, whose constructor is in C.
    """


class DeviceError(MgraphError, RuntimeError):
    """Missing device, driver, compiler or writable folder for compiled kernels."""


class ExchangeError(MgraphError, RuntimeError):
    """Ranks that made different calls, or belong to different attempts, or a message that does not fit its call."""


class NoPath(MgraphError, LookupError):
    """No path leads from the source to the target."""


class ReadError(MgraphError, ValueError):
    """Unreadable graph or batch file; the message names file and line."""


class StoreError(MgraphError, RuntimeError):
    """Store that cannot be written, read or opened.

    A change that raises this error was not made, and the graph can still be read.

    Parameters
    ----------
    reason : "in use" | "unseen", optional
        Transient causes: another process has the store, or no worker sees a part of it.

    Attributes
    ----------
    undecided : int
        The last epoch that the store may have although it was not made, as the message says; 0 if none. Opening the
        store again decides.
    """

    undecided: int = 0

    def __init__(self, *message: object, reason: Literal["in use", "unseen"] | None = None) -> None:
        super().__init__(*message)
        self.reason = reason


class GraphClosed(MgraphError, RuntimeError):
    """Closed graph or result, or a graph whose Dask client was closed."""


class GraphLost(MgraphError, RuntimeError):
    """Unusable graph: workers may hold different states. Only ``close()`` still works.

    A worker was lost while a batch was being committed, or did not return from an aborted call; or the store may have a
    change that was interrupted. The message names the last epoch that all workers acknowledged.
    """


class WorkerLost(MgraphError, RuntimeError):
    """Worker that died, closed its session or stopped answering. Only ``close()`` still works.

    The message names the rank and the worker's address.
    """


class Aborted(MgraphError, RuntimeError):
    """Wait that ended because the client aborted the call. Users see the cause instead."""
