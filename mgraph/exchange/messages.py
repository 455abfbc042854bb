"""Messages of the exchange over Dask comms.

A part is sent as one message or, if it is long, as several. If it has more than `GRAIN` bytes or takes several
messages, an empty message announces it, so that the receiver can refuse it before a comm allocates memory. The fields
of a message:

key, step, source, call, dtype   compared with what the receiver expects
items                            the number of items in the whole part
at                               the index of the first item in this message
data                             bytes if they are few; else an array, preceded by the field `pad`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from distributed.protocol import Serialize, Serialized, deserialize

from mgraph.budget import GRAIN
from mgraph.errors import ExchangeError

__all__ = ["INLINE", "Head", "own"]

INLINE = 32 << 10  #: bytes up to which a copy into the message costs less than a separate buffer

# A comm reads the first buffer of a message together with the header, so this buffer is misaligned; every later buffer
# gets its own memory. The pad is sent as the first buffer, so that the data need not be copied to align them.
_PAD = np.zeros(1, np.uint8)


@dataclass(frozen=True)
class Head:
    """Common fields of all messages of a part."""

    key: tuple[str, int]
    step: int
    source: int
    call: str
    dtype: str

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return asdict(self)

    def messages(self, part: np.ndarray, limit: int, copy: bool) -> Iterator[dict[str, Any]]:
        """Yield the messages of `part`, at least one, with at most `limit` bytes of data each.

        Data are views of the part, or copies if `copy`.
        """
        # Announce a long part.
        items = limit // part.dtype.itemsize
        if part.nbytes > min(GRAIN, limit):
            yield {**self._fields, "items": part.size, "at": 0, "data": b""}

        # Send its data.
        for at in range(0, max(part.size, 1), items):
            data = part[at : at + items]
            message = {**self._fields, "items": part.size, "at": at}
            if data.nbytes <= INLINE:
                yield {**message, "data": data.tobytes()}
            else:
                yield {**message, "pad": Serialize(_PAD), "data": Serialize(data.copy() if copy else data)}

    def take(self, message: Any, at: int) -> tuple[int, np.ndarray]:
        """Return the number of items in the whole part, and the data of `message`, which must begin with item `at`.

        Raises
        ------
        ExchangeError
            A field of `message` is not the expected one.
        """
        # Compare every field with the expected one.
        want = {**self._fields, "at": at}
        got = {name: message.get(name) for name in want} if isinstance(message, dict) else dict.fromkeys(want)
        if isinstance(got["key"], list):  # depending on the comm, msgpack turns a tuple into a list
            got["key"] = tuple(got["key"])
        wrong = [f"{name} {got[name]!r} instead of {want[name]!r}" for name in want if got[name] != want[name]]
        if wrong:
            raise ExchangeError(f"graph {self.key[0]}: a message from rank {self.source} has {', '.join(wrong)}")
        return int(message["items"]), own(message["data"], np.dtype(self.dtype))


def own(data: Any, dtype: np.dtype) -> np.ndarray:
    """Return `data` as a writable, aligned array of `dtype`, without a copy if it is one."""
    if isinstance(data, bytes):
        return np.frombuffer(data, dtype).copy()
    if isinstance(data, Serialized):  # the comm does not deserialize
        data = deserialize(data.header, data.frames)
    array = np.asarray(data)
    return array if array.flags.writeable and array.flags.aligned and array.dtype == dtype else array.astype(dtype)
