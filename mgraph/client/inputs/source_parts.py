"""The parts of a source of an ingest that each rank reads, and the sources that need no Dask: functions and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mgraph.checks import check_count
from mgraph.errors import InvalidOption
from mgraph.tables.files.columnar import FILES
from mgraph.tables.files.opening import suffix_of
from mgraph.tables.names import Names

__all__ = ["WATCH_SECONDS", "AsParts", "Parts", "check_file", "dealt", "function_or_files"]

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
                if future.done():  # meanwhile, or the error is the one of the data
                    return future.result()
                self._watch()


#: ``as_parts(source, steps, names, seats)``: a source of ``len(seats)`` shares as the ranks are told it, of which
#: rank ``seats[q]`` reads share q; see `DynamicGraph.ingest`. Without seats it is Dask's, and this process reads it
AsParts = Callable[[Any, int | None, Names, Sequence[int]], Parts]


def dealt(kind: str, parts: Sequence[Any], size: int, names: Names) -> list[dict[str, Any]]:
    """Return each rank's share of the parts: part i goes to rank ``i % size``."""
    return [{"kind": kind, "rank": r, "parts": parts[r::size], "names": vars(names)} for r in range(size)]


def function_or_files(
    source: Any,
    size: int,
    steps: int | None,
    names: Names,
    packed: Callable[[Callable[..., Any]], Any],
) -> Parts | None:
    """Return the parts of a function, which ranks get as `packed` makes it, or of files; None for other sources.

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
        share = {"kind": "function", "function": packed(source), "name": name, "steps": steps, "names": vars(names)}
        return Parts([{**share, "rank": rank} for rank in range(size)])
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and not source:
        raise InvalidOption("a list of 0 parts; a source has at least one")
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return Parts(dealt("files", [check_file(item) for item in source], size, names))
    return None


def check_file(path: Any) -> str:
    """Return the path of a file of columns as text; `InvalidOption` for another suffix than `FILES`."""
    if suffix_of(path) not in FILES:
        raise InvalidOption(f"{os.fspath(path)}: files of edges end in {', '.join(FILES)}, maybe with .gz or another")
    return os.fsdecode(path)
