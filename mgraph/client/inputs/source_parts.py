"""The parts of an ingest's source for each rank; and sources without Dask: functions and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from mgraph.checks import check_count
from mgraph.errors import InvalidOption
from mgraph.tables.files.columnar import FILES
from mgraph.tables.files.opening import suffix_of
from mgraph.tables.names import Names

__all__ = ["WATCH_SECONDS", "AsParts", "Parts", "check_file", "deal", "function_or_files"]

WATCH_SECONDS = 0.5  #: time between two checks of the workers while Dask computes


class Parts:
    """A source split among the ranks.

    It keeps the data that it names alive.

    Parameters
    ----------
    shares : list of dict
        The arguments of each rank's `mgraph.worker.inputs.sources.open_source`.
    held : sequence
        Dask data, each on the worker of the rank that reads it; anywhere if this process reads it.
    watch : callable
        Called from time to time while data is awaited; raises an error if it will not come.
    """

    def __init__(
        self, shares: list[dict[str, Any]], held: Sequence[Any] = (), watch: Callable[[], None] = lambda: None
    ) -> None:
        self.shares, self._held, self._watch = shares, held, watch

    def seated(self, seats: Sequence[int], size: int) -> list[list[dict[str, Any]]]:
        """Return the shares that each of `size` ranks reads, in their order. Rank ``seats[q]`` reads share q."""
        return [[share for share, seat in zip(self.shares, seats, strict=True) if seat == r] for r in range(size)]

    def fetched(self) -> Iterator[Any]:
        """Yield the Dask data in this process, one by one. Each is freed when the next is asked for."""
        futures, self._held = list(self._held), ()
        while futures:
            yield self._result(futures.pop(0))

    def _result(self, future: Any) -> Any:
        while True:
            try:
                return future.result(timeout=WATCH_SECONDS)
            except CancelledError as error:
                raise InvalidOption(f"a part of the source was cancelled: {error}") from None
            except TimeoutError:
                # It ended just now, or the TimeoutError is its own.
                if future.done():
                    return future.result()
                self._watch()


#: ``as_parts(source, steps, names, seats)``: splits a source of `DynamicGraph.ingest` into ``len(seats)`` shares; rank
#: ``seats[q]`` reads share q. Without seats it is a Dask collection that this process reads
AsParts = Callable[[Any, int | None, Names, Sequence[int]], Parts]


def deal(kind: str, parts: Sequence[Any], size: int, names: Names) -> list[dict[str, Any]]:
    """Deal the parts to the ranks in turn.

    Part i goes to rank ``i % size``.
    """
    return [{"kind": kind, "rank": r, "parts": parts[r::size], "names": vars(names)} for r in range(size)]


def function_or_files(
    source: Any,
    size: int,
    steps: int | None,
    names: Names,
    packed: Callable[[Callable[..., Any]], Any],
) -> Parts | None:
    """Return the parts of a function, pickled by `packed`, or of files; None for other sources.

    Raises
    ------
    InvalidOption
        `steps` belongs to a function only; a list is empty; or a file has another suffix than `FILES`.
    """
    is_function = callable(source) and not hasattr(source, "__dask_graph__")  # Dask's delayed values can be called
    if steps is not None and not is_function:
        raise InvalidOption("steps belong to a function; a source of parts has as many steps as it has parts")

    # Each rank calls a function itself.
    if is_function:
        steps = None if steps is None else check_count(steps, "steps")
        name = getattr(source, "__qualname__", type(source).__qualname__)
        share = {"kind": "function", "function": packed(source), "name": name, "steps": steps, "names": vars(names)}
        return Parts([{**share, "rank": rank} for rank in range(size)])

    # Files are dealt to the ranks.
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and not source:
        raise InvalidOption("a list of 0 parts; a source has at least one")
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return Parts(deal("files", [check_file(item) for item in source], size, names))
    return None


def check_file(path: Any) -> str:
    """Return the path of a file of columns as text. `InvalidOption` for other suffixes than `FILES`."""
    if suffix_of(path) not in FILES:
        raise InvalidOption(f"{os.fspath(path)}: files of edges end in {', '.join(FILES)}, maybe with .gz or another")
    return os.fsdecode(path)
