"""The messages of the exchange over Dask comms.

A part travels as one message or, where it is long, as several:

key, step, source, call, dtype   what the receiver expects, checked
items                            of the whole part
at                               the first item in this message
data                             bytes where there are few, else an array; then `pad` stands before it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from distributed.protocol import Serialize, Serialized, deserialize

from mgraph.exchange.contract import ExchangeError

__all__ = ["INLINE", "Head", "own"]

INLINE = 32 << 10  #: bytes up to which a copy into the message costs less than a buffer of its own

# A comm reads the first buffer of a message together with the header, so that it arrives misaligned, and every later
# one into memory of its own: this goes first, and the data need not be copied.
_PAD = np.zeros(1, np.uint8)


@dataclass(frozen=True)
class Head:
    """What all messages of one part have in common."""

    key: tuple[str, int]
    step: int
    source: int
    call: str
    dtype: str

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return asdict(self)

    def messages(self, part: np.ndarray, limit: int, copy: bool) -> Iterator[dict[str, Any]]:
        """`part` as messages of at most `limit` bytes of data each; at least one. Views of `part` unless `copy`."""
        items = limit // part.dtype.itemsize
        for at in range(0, max(part.size, 1), items):
            data = part[at : at + items]
            message = {**self._fields, "items": part.size, "at": at}
            if data.nbytes <= INLINE:
                yield {**message, "data": data.tobytes()}
            else:
                yield {**message, "pad": Serialize(_PAD), "data": Serialize(data.copy() if copy else data)}

    def take(self, message: Any, at: int) -> tuple[int, np.ndarray]:
        """The items of the whole part, and the data of `message`, which must be the one from item `at`."""
        want = {**self._fields, "at": at}
        got = {name: message.get(name) for name in want} if isinstance(message, dict) else dict.fromkeys(want)
        if isinstance(got["key"], list):  # msgpack makes a list of a tuple, or not, as the comm chooses
            got["key"] = tuple(got["key"])
        wrong = [f"{name} {got[name]!r} for {want[name]!r}" for name in want if got[name] != want[name]]
        if wrong:
            raise ExchangeError(f"graph {self.key[0]}: a message from rank {self.source} has {', '.join(wrong)}")
        return int(message["items"]), own(message["data"], np.dtype(self.dtype))


def own(data: Any, dtype: np.dtype) -> np.ndarray:
    """`data` as a writable, aligned array of `dtype`; the very buffer where it is that already."""
    if isinstance(data, bytes):
        return np.frombuffer(data, dtype).copy()
    if isinstance(data, Serialized):  # from a comm that does not deserialize
        data = deserialize(data.header, data.frames)
    array = np.asarray(data)
    return array if array.flags.writeable and array.flags.aligned and array.dtype == dtype else array.astype(dtype)
