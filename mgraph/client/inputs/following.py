"""Following a source whose batches have places: each is in the graph exactly once, through any crash."""

from __future__ import annotations

from typing import Any

from mgraph.client.vertices.keyed import part_of
from mgraph.errors import InvalidOption

__all__ = ["follow"]


def follow(self: Any, source: Any, max_bytes: int = 1 << 28) -> int:
    """Apply the batches of a source, each exactly once; those that the graph has are left out.

    The place of each batch is logged with it. So a program that was ended, however, goes on where the graph is: it
    opens the graph and follows the source again.

    Parameters
    ----------
    source : mgraph.sources.Folder, Kafka or Numbered
        Or any object with a method ``batches(after)``; see `mgraph.sources.places.Places`.
    max_bytes : int
        As in `pipeline`. A graph without `n_vertices` takes one batch at a time instead, since it may grow.

    Returns
    -------
    int
        How many batches were applied, when the source has ended. Ctrl-C ends a source that does not end.

    Raises
    ------
    InvalidOption
        The graph has no store; or the places of the source do not ascend.
    Exception
        What the source raises, or `update`. The batches before that are applied.

    Examples
    --------
    >>> graph.follow(mgraph.sources.Folder("/data/edges", idle=60))  # doctest: +SKIP
    1440
    """
    if self._storing is None:
        raise InvalidOption("the graph has no store, so it cannot keep its places in a source")
    if not hasattr(source, "batches"):
        kind = type(source).__name__
        raise InvalidOption(f"follow takes a source whose batches have places, as mgraph.sources.Folder; got {kind}")
    return _grown(self, source) if self._options.grows else _piped(self, source, max_bytes)


def _grown(graph: Any, source: Any) -> int:
    n = 0
    for place, part in source.batches(graph.offsets):
        graph.update(part_of(graph.keys, part), offset=place)
        n += 1
    return n


def _piped(graph: Any, source: Any, max_bytes: int) -> int:
    n, batches = 0, source.batches(graph.offsets)
    with graph.pipeline(max_bytes) as pipeline:
        for place, part in batches:
            pipeline.update(part_of(graph.keys, part), offset=place)
            n += 1
    return n
