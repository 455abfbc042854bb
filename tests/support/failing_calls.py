"""System calls on the files of a store that fail, one after another: each call has a number, and some numbers fail."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

#: the calls by which a store changes files, and whether their first argument is a descriptor
CALLS = {
    "pwritev": True, "fdatasync": True, "fsync": True, "ftruncate": True, "posix_fallocate": True,
    "open": False, "replace": False, "mkdir": False, "unlink": False,
}  # fmt: skip


class FailingCalls:
    """Counts the calls on files below a folder, and fails those with some numbers.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
    folder : Path
    failing : collection of int
        The numbers of the calls that fail, from 0.
    number : int
        The error.

    Attributes
    ----------
    names : list of str
        The calls that were made.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, failing: Collection[int], number: int = errno.ENOSPC
    ) -> None:
        self.names: list[str] = []
        self._folder, self._failing, self._number = str(folder), failing, number
        self._lock = threading.Lock()
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(target: Any, *args: Any, **kwargs: Any) -> Any:
            if self._fails(name, target, args):
                if name == "pwritev":  # some of it is on the disk: a part of a header, or half of all records
                    data = b"".join(bytes(part) for part in args[0])
                    call(target, [data[: 50 if len(self.names) % 2 else len(data) // 2]], *args[1:])
                raise OSError(self._number, os.strerror(self._number), None if CALLS[name] else str(target))
            return call(target, *args, **kwargs)

        return counted

    def _fails(self, name: str, target: Any, args: Any) -> bool:
        path = os.readlink(f"/proc/self/fd/{target}") if CALLS[name] else os.fspath(target)
        reads = name == "open" and not args[0] & (os.O_RDWR | os.O_WRONLY)
        if not path.startswith(self._folder) or reads or path.endswith(".lock"):
            return False
        with self._lock:
            self.names.append(f"{name} {path[len(self._folder) :]}")
            return len(self.names) - 1 in self._failing
