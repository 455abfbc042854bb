"""The errors that mgraph raises. All derive from `MgraphError`.

Each message names the wrong value and the limit, and the rank and the epoch where they matter. Errors are sent from
workers to the client, so every class takes its message as the only positional argument, which makes it picklable. What
the program decides by is a field, since messages are for people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

__all__ = [
    "Aborted",
    "CapacityError",
    "DeviceError",
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
    """Base class of all errors that mgraph raises on purpose.

    Attributes
    ----------
    during : int or None
        The epoch that the failed call was to commit; None if it was to commit none, or was not sent.
    vertices : tuple of int
        The users' ids of the vertices that the message names, where `about` made it.
    rank : int or None
        The rank that raised it, where the message names it.
    done : int64[k, 6] or None
        Of a message with several batches, the counts of those that were committed before the one that failed.
    """

    during: int | None = None
    vertices: tuple[int, ...] = ()
    rank: int | None = None
    done: Any = None
    _text = ""

    @classmethod
    def about(cls, text: str, *vertices: int) -> Self:
        """An error whose message is `text`, a format, with users' ids of vertices."""
        error = cls(text.format(*vertices))
        error._text, error.vertices = text, vertices
        return error

    def named(self, names: Callable[[Any], Any]) -> Self:
        """The error with the names of its vertices instead of ids; ``names(ids)`` returns an array."""
        return type(self)(self._text.format(*map(repr, names(list(self.vertices)).tolist())))


class InvalidBatch(MgraphError, ValueError):
    """An edge batch is invalid: unequal lengths, wrong dtypes, invalid vertex ids, NaN weights or unknown ops."""


class UnknownVertex(MgraphError, LookupError):
    """A vertex id is outside ``0 .. num_vertices - 1``, or a key is not in the graph."""

    @classmethod
    def past(cls, what: str, vertex: int, n_vertices: int) -> Self:
        """The error for an id, which `what` names, outside of a graph's."""
        if n_vertices < 2:
            return cls(f"{what} is {vertex}; the graph has {'1 vertex, 0' if n_vertices else '0 vertices'}")
        return cls(f"{what} is {vertex}; the graph has {n_vertices} vertices, 0 to {n_vertices - 1}")


class InvalidOption(MgraphError, ValueError):
    """An argument is not one of its allowed names, or is outside its range."""


class CapacityError(MgraphError, RuntimeError):
    """The operation needs more memory than there is, or more vertices than 32-bit ids allow. Nothing was changed.

    It does not derive from `MemoryError`: that class has its own constructor in C, with which a subclass may fail to
    unpickle.
    """


class DeviceError(MgraphError, RuntimeError):
    """A device, driver, compiler or writable folder for compiled kernels is missing; the message says what to do."""


class NoPath(MgraphError, LookupError):
    """No path leads from the source to the target."""


class ReadError(MgraphError, ValueError):
    """A file cannot be read as a graph or as a batch; the message names the file and, for text files, the line."""


class StoreError(MgraphError, RuntimeError):
    """A store cannot be written, read or opened; the message names the file and says what to do.

    A change that raises it was not made, and the graph goes on.

    Parameters
    ----------
    reason : "in use" | "unseen", optional
        Causes that may pass: another process has the store, or no worker sees a part of it.
    """

    def __init__(self, *message: object, reason: Literal["in use", "unseen"] | None = None) -> None:
        super().__init__(*message)
        self.reason = reason


class GraphClosed(MgraphError, RuntimeError):
    """The graph or the result was closed, or the Dask client of the graph was."""


class GraphLost(MgraphError, RuntimeError):
    """The graph can no longer be used, because workers may hold different states; only ``close()`` still works.

    A worker was lost while a batch was being committed, or did not return from an aborted call. The message names the
    last epoch that all workers acknowledged.
    """


class WorkerLost(MgraphError, RuntimeError):
    """A worker died, closed its session or stopped answering; only ``close()`` still works.

    The message names the rank and the worker's address.
    """


class Aborted(MgraphError, RuntimeError):
    """A rank stopped waiting because the client aborted the call. Users see the error that caused the abort instead."""
