"""Sources whose batches have places, so that a graph with a store takes each of them exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mgraph.errors import InvalidOption

__all__ = ["Numbered", "Placed", "Places"]

#: a batch with its place: the name of a source, a number that ascends in it, and what `mgraph.batch.as_batch` takes
Placed = tuple[tuple[str, int], Any]


class Places(Protocol):
    """What `DynamicGraph.follow` reads."""

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """The batches behind the last place of each source, in ascending order; all of a source that is not named."""


@dataclass(frozen=True)
class Numbered:
    """Any iterator of numbered batches.

    Parameters
    ----------
    name : str
        The name of the source, under which the graph's `offsets` has its last place.
    pairs : iterable of (int, batch), or callable
        Pairs whose numbers ascend; a batch is what a part of `DynamicGraph.ingest` may be. A callable gets the last
        number that the graph has, or -1, and returns such pairs; those that the graph has are left out in any case.

    Examples
    --------
    >>> Numbered("days", [(0, ([1], [2])), (1, ([2], [3]))])  # doctest: +SKIP
    """

    name: str
    pairs: Iterable[tuple[int, Any]] | Callable[[int], Iterable[tuple[int, Any]]]

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """As `Places`.

        Raises
        ------
        InvalidOption
            The numbers do not ascend.
        """
        last = after.get(self.name, -1)
        before = -1
        for number, batch in self.pairs(last) if callable(self.pairs) else self.pairs:
            if number <= before:
                raise InvalidOption(f"source {self.name!r}: number {number} comes after {before}; they must ascend")
            before = number
            if number > last:
                yield (self.name, number), batch
