"""A source of an ingest as the ranks are told it, and the sources that need no Dask: functions and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgraph.batch import FILES
from mgraph.checks import check_count
from mgraph.errors import InvalidOption

__all__ = ["WATCH_SECONDS", "AsParts", "Parts", "dealt", "function_or_files", "is_dasks"]

WATCH_SECONDS = 0.5  #: how often a wait for Dask looks whether the workers are still there


class Parts:
    """A source as each rank is told it; keeps the data that it names alive.

    Parameters
    ----------
    shares : list of dict
        What each rank's `mgraph.worker.inputs.sources.open_source` is given.
    held : sequence
        Dask data, each on the worker of the rank that reads it; or wherever, where no rank does.
    watch : callable
        Called from time to time while data is awaited; raises where it will not come.
    """

    def __init__(
        self, shares: list[dict[str, Any]], held: Sequence[Any] = (), watch: Callable[[], None] = lambda: None
    ) -> None:
        self.shares, self._held, self._watch = shares, held, watch

    def seated(self, seats: Sequence[int], size: int) -> list[list[dict[str, Any]]]:
        """The shares that each of `size` ranks reads, in their order, where share q is read by rank ``seats[q]``."""
        return [[share for share, seat in zip(self.shares, seats, strict=True) if seat == r] for r in range(size)]

    def fetched(self) -> Iterator[Any]:
        """The Dask data, one after another, in this process; each is freed when the next is asked for."""
        held, self._held = list(self._held), ()
        while held:
            yield self._result(held.pop(0))

    def _result(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=WATCH_SECONDS)
            except TimeoutError:
                if future.done():  # it is the error of the data
                    raise
                self._watch()


#: ``as_parts(source, steps, columns, seats)``: a source of ``len(seats)`` shares as the ranks are told it, of which
#: rank ``seats[q]`` reads share q; see `DynamicGraph.ingest`. Without seats it is Dask's, and this process reads it
AsParts = Callable[[Any, int | None, Mapping[str, str] | None, Sequence[int]], Parts]


def dealt(kind: str, parts: Sequence[Any], size: int, columns: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """Each rank's share of the parts: part i goes to rank ``i % size``."""
    return [{"kind": kind, "rank": r, "parts": parts[r::size], "columns": columns} for r in range(size)]


def is_dasks(source: Any) -> bool:
    """Whether a source, or a column or a part of it, is Dask's."""
    inside = source.values() if isinstance(source, Mapping) else source if isinstance(source, list | tuple) else ()
    return any(
        hasattr(one, "__dask_graph__") or type(one).__module__.startswith("distributed.") for one in (source, *inside)
    )


def function_or_files(
    source: Any,
    size: int,
    steps: int | None,
    columns: Mapping[str, str] | None,
    packed: Callable[[Callable[..., Any]], Any],
) -> Parts | None:
    """The parts of a function, which ranks get as `packed` makes it, or of a list of files; None for other sources.

    Raises
    ------
    InvalidOption
        `steps` is given and the source is no function; a list is empty; or a file has another suffix than `FILES`.
    """
    is_function = callable(source) and not hasattr(source, "__dask_graph__")  # Dask's delayed values can be called
    if steps is not None and not is_function:
        raise InvalidOption("steps belong to a function; a source of parts has as many steps as it has parts")
    if is_function:
        steps = None if steps is None else check_count(steps, "steps")
        name = getattr(source, "__qualname__", type(source).__qualname__)
        share = {"kind": "function", "function": packed(source), "name": name, "steps": steps, "columns": columns}
        return Parts([{**share, "rank": rank} for rank in range(size)])
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and not source:
        raise InvalidOption("a list of 0 parts; a source has at least one")
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return Parts(dealt("files", [_checked_path(item) for item in source], size, columns))
    return None


def _checked_path(path: Any) -> str:
    if Path(path).suffix not in FILES:
        raise InvalidOption(f"{os.fspath(path)}: workers read files that end in {', '.join(FILES)}")
    return os.fspath(path)
