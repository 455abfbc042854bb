"""Follow a source whose batches have places: each is applied exactly once, through any crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mgraph.batch import as_batch
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.facade import warn
from mgraph.failures import with_place
from mgraph.sources.places import placed
from mgraph.tables.names import Names

__all__ = ["follow", "positional"]


def follow(
    self: Any,
    data: Any = None,
    /,
    max_bytes: int = 1 << 28,
    *,
    source: Any = None,
    target: Any = None,
    weight: Any = None,
    op: Any = None,
    time: Any = None,
) -> int:
    """Apply the batches of a source, each exactly once.

    Batches that the graph has are skipped. The place of each batch is logged with it. So a program that ended in any
    way can open the graph and follow the source again: it continues where the graph is.

    Parameters
    ----------
    data : mgraph.sources.Folder, Kafka or Numbered
        The source, or any object with a method ``batches(after)``; see `mgraph.sources.places.Places`.
    max_bytes : int
        As in `pipeline`. A graph without `n_vertices` takes one batch at a time instead, since it may grow.
    source, target, weight, op, time : str, optional
        The columns of batches that are tables or files, as in `update`.

    Returns
    -------
    int
        The number of applied batches, once the source has ended. Ctrl-C ends an endless source.

    Raises
    ------
    InvalidOption
        The graph has no store; or the batches of the source have no places, or these do not ascend.
    Exception
        An error of the source or of `update`. The batches before it are applied.

    Examples
    --------
    >>> graph.follow(mgraph.sources.Folder("/data/edges", idle=60))  # doctest: +SKIP
    1440
    """
    if self._storing is None:
        raise InvalidOption("the graph has no store, so it cannot keep its places in a source")
    data, source = positional(data, source, "follow")
    if not hasattr(data, "batches"):
        kind = type(data).__name__
        raise InvalidOption(f"follow takes a source whose batches have places, as mgraph.sources.Folder; got {kind}")
    names = self._options.names(source=source, target=target, weight=weight, op=op, time=time)
    return _grown(self, data, names) if self._options.grows else _piped(self, data, names, max_bytes)


def positional(data: Any, source: Any, call: str) -> tuple[Any, Any]:
    """Return a call's source and the name of its column `source`.

    ``source=`` had the source itself once, which is deprecated.
    """
    if data is None and source is not None:
        warn(f"{call}(source=...) is deprecated; give the source as the first argument", DeprecationWarning)
        return source, None
    return data, source


def _grown(graph: Any, source: Any, names: Names) -> int:
    n = 0
    for place, part in placed(source, graph.offsets):
        with _named(place):
            graph.update(as_batch(part, names, graph._directory.keys), offset=place)
        n += 1
    return n


def _piped(graph: Any, source: Any, names: Names, max_bytes: int) -> int:
    n, batches = 0, placed(source, graph.offsets)
    with graph.pipeline(max_bytes) as pipeline:
        for place, part in batches:
            with _named(place):
                pipeline.update(as_batch(part, names, graph._directory.keys, own=True), offset=place)
            n += 1
    return n


@contextmanager
def _named(place: tuple[str, int]) -> Iterator[None]:
    """Name the batch in errors about its contents. Batches in flight have other errors, raised by the workers."""
    try:
        yield
    except (InvalidBatch, UnknownVertex) as error:
        raise with_place(error, f"batch {place[1]} of the source {place[0]!r}") from None
