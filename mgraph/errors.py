"""What mgraph raises: one small family, so that ``except MgraphError`` catches all of it.

Each message names the value that was wrong, the limit it broke and, where there is one, the rank and the epoch.
Errors cross processes: every class is built from its message alone, so that it pickles.
"""

__all__ = [
    "Aborted",
    "CapacityError",
    "DeviceError",
    "GraphClosed",
    "GraphLost",
    "InvalidBatch",
    "InvalidOption",
    "MgraphError",
    "ReadError",
    "UnknownVertex",
    "WorkerLost",
]


class MgraphError(Exception):
    """Base class of every error that mgraph raises on purpose."""


class InvalidBatch(MgraphError, ValueError):
    """An edge batch with unequal lengths, wrong dtypes, ids that are no vertex ids, NaN weights or unknown ops."""


class UnknownVertex(MgraphError, LookupError):
    """A vertex id outside ``0 .. num_vertices - 1``."""


class InvalidOption(MgraphError, ValueError):
    """A name or a number that chooses how to do something is not one of the choices."""


class CapacityError(MgraphError, RuntimeError):
    """What was asked for does not fit: memory, or the id type. Nothing was changed.

    No `MemoryError`: that has a constructor of its own in C, which unpickling can refuse to call for a subclass.
    """


class DeviceError(MgraphError, RuntimeError):
    """No such device, no driver, or no compiler; the message says what to install."""


class ReadError(MgraphError, ValueError):
    """A file that is no graph; the message names the file and the line."""


class GraphClosed(MgraphError, RuntimeError):
    """A call on a graph, or on a result of a graph, that has been closed."""


class GraphLost(MgraphError, RuntimeError):
    """A rank was lost after the vote on a batch: only ``close()`` works now. Names the last acknowledged epoch."""


class WorkerLost(MgraphError, RuntimeError):
    """A worker died, closed its session or stopped answering. Names the rank and its address."""


class Aborted(MgraphError, RuntimeError):
    """A rank gave up waiting because its coordinator told it to; users see the error that caused it instead."""
