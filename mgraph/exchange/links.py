"""Links of a gateway to other groups. Programs on CPUs send and receive by them within a launch."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mgraph.device import Device
from mgraph.kernels import constants, load

__all__ = ["CLOSED", "UNFIT", "Link", "Links"]

FILE = "exchange/gateway.h"
WORDS = constants(FILE)
OUT, IN, TRANSFER, CODE, THEIRS = (WORDS[f"link_{name}"] for name in ("out", "in", "transfer", "code", "theirs"))
CLOSED, UNFIT = WORDS["link_closed"], WORDS["link_unfit"]
COUNT, RANKS, LINK = WORDS["link_count"], WORDS["link_ranks"], WORDS["link_words"]


class Link(NamedTuple):
    """Sockets to the gateway of another group.

    Attributes
    ----------
    ranks : sequence of int
        The ranks of the other group.
    out, into : int
        Descriptors to send by, and to receive from. They do not block.
    code : int
        The code of a meeting's messages.
    fail : callable
        ``fail(code, error)`` raises the error for another call at the other end, for a connection that has ended
        (`CLOSED`), or for a message that does not fit the program (`UNFIT`); or `error`, which `transfer` has raised.
    transfer : callable, optional
        ``transfer(sends, data)`` sends or receives data, for sockets that encrypt. It returns the number of bytes, 0 if
        the connection has ended, -1 if it would block.
    closed : callable, optional
        Returns True once the own sockets were closed, which duplicated descriptors do not show.
    """

    ranks: Sequence[int]
    out: int
    into: int
    code: int
    fail: Callable[[int, BaseException | None], NoReturn]
    transfer: Callable[[bool, memoryview], int] | None = None
    closed: Callable[[], bool] = lambda: False


class Links:
    """Links of a rank as programs read them.

    Descriptors are duplicated, so that a program never writes to a file that has got the number of a closed socket.
    """

    def __init__(self, device: Device, links: Sequence[Link]) -> None:
        self._links, self.words = links, device.zeros(len(links) * LINK, np.int64).reshape(-1, LINK)
        self.function = load(device, FILE).Carry.address if links else 0
        self._transfers = list[Any]()  # functions that programs call
        self._errors = list[BaseException]()  # that these have raised
        numbers = list[int]()
        self.close = weakref.finalize(self, _close, numbers)  #: closes them
        for words, link in zip(self.words, links, strict=True):
            numbers.append(os.dup(link.out))
            numbers.append(os.dup(link.into))
            words[OUT], words[IN], words[CODE] = *numbers[-2:], link.code
            words[COUNT], words[RANKS : RANKS + len(link.ranks)] = len(link.ranks), link.ranks
            if link.transfer is not None:
                self._transfers.append(_transfer_of(words, link.transfer, self._errors))
                words[TRANSFER] = ctypes.cast(self._transfers[-1], ctypes.c_void_p).value or 0

    def __len__(self) -> int:
        return len(self._links)

    def check(self) -> None:
        """Raise the error of a link whose sockets were closed."""
        for link in self._links:
            if link.closed():
                link.fail(CLOSED, None)

    def fail(self) -> NoReturn:
        """Raise the error of the link at which a program has ended."""
        for words, link in zip(self.words, self._links, strict=True):
            if words[THEIRS]:
                link.fail(int(words[THEIRS]), self._errors.pop() if self._errors else None)
        raise AssertionError("no link has failed")


def _transfer_of(words: np.ndarray, transfer: Callable[[bool, memoryview], int], errors: list[BaseException]) -> Any:
    """Return a C function that transfers data in the memory of a link. After an error, which is kept, the link ends."""
    memory, start = words.view(np.uint8).data, words.ctypes.data

    @ctypes.CFUNCTYPE(ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p, ctypes.c_longlong)
    def function(sends: int, data: int, nbytes: int) -> int:
        try:
            return transfer(bool(sends), memory[data - start : data - start + nbytes])
        except BaseException as error:  # a C function cannot raise it
            errors.append(error)
            return 0

    return function


def _close(numbers: list[int]) -> None:
    for number in numbers:
        os.close(number)
