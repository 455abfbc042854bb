"""Sources whose batches have offsets, for exactly-once delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mgraph.checks import check_offset, check_whole
from mgraph.errors import InvalidOption

__all__ = ["Numbered", "Placed", "Places", "placed"]

#: a batch with its offset: the name of a source, a number that ascends in it, and the argument of `as_batch`
Placed = tuple[tuple[str, int], Any]


class Places(Protocol):
    """Protocol of the sources that `DynamicGraph.follow` reads."""

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """Yield the batches after the last offset of each source, in order; all without an offset."""


@dataclass(frozen=True)
class Numbered:
    """Source of numbered batches from any iterator.

    Parameters
    ----------
    name : str
        The name of the source, under which the graph's `offsets` has its last number.
    pairs : iterable of (int, batch), or callable
        Pairs whose numbers ascend; a batch may be anything that `DynamicGraph.ingest` takes as a part. A callable gets
        the last number that the graph has, or -1, and returns such pairs. Batches that the graph has are left out in
        any case.

    Examples
    --------
    >>> Numbered("days", [(0, ([1], [2])), (1, ([2], [3]))])  # doctest: +SKIP
    """

    name: str
    pairs: Iterable[tuple[int, Any]] | Callable[[int], Iterable[tuple[int, Any]]]

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """Yield the batches with numbers above the last offset.

        Raises
        ------
        InvalidOption
            `pairs` has something other than pairs of a whole number and a batch, or the numbers do not ascend.
        """
        last = after.get(self.name, -1)
        before, what = -1, f"the number of a batch of source {self.name!r}"
        for key, batch in _pairs(self.pairs(last) if callable(self.pairs) else self.pairs, f"source {self.name!r}"):
            if (number := check_whole(key, what)) <= before:
                raise InvalidOption(f"source {self.name!r}: number {number} comes after {before}; they must ascend")
            before = number
            if number > last:
                yield (self.name, number), batch


def placed(source: Places, after: Mapping[str, int]) -> Iterator[Placed]:
    """Yield the batches of a source and their offsets; `InvalidOption` for an item that is no such pair."""
    for place, batch in _pairs(source.batches(after), f"batches() of a {type(source).__name__}"):
        yield check_offset(place), batch


def _pairs(items: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """Yield pairs; `InvalidOption` for an item that is none, or if `items` cannot be iterated over."""
    try:
        items = iter(items)
    except TypeError:
        raise InvalidOption(f"{what} is {items!r:.200}; it must be an iterable of pairs") from None
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InvalidOption(f"{what} has {item!r:.200}; it must be a pair, of a number or an offset and a batch")
        yield item[0], item[1]
