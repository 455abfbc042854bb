"""A store on a disk of which reads fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crashing import CrashingFiles, MemoryContents
from stream_of_logs import PATH, stored

from mgraph.errors import StoreError
from mgraph.log.files import DISK
from mgraph.log.recovery_scan import scan_store
from mgraph.log.store import Store


class FailingReads(CrashingFiles):
    """The files of a store, of which one read fails: of bytes, names, or whether something is there."""

    def __init__(self, files: CrashingFiles, which: int) -> None:
        super().__init__()
        self.now, self.left, self.path = files.now, which, ""

    def look(self, path: str) -> None:
        self.left -= 1
        if self.left == -1:
            self.path = path
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def names(self, path: str) -> list[str]:
        self.look(path)
        return super().names(path)

    def exists(self, path: str) -> bool:
        self.look(path)
        return super().exists(path)

    def read(self, path: str) -> bytes:
        self.look(path)
        return super().read(path)

    def contents(self, path: str) -> Any:
        contents, look = MemoryContents(self.read(path)), self.look
        read = contents.read

        def failing(at: int, parts: Sequence[Any]) -> int:
            look(path)
            return read(at, parts)

        contents.read = failing  # type: ignore[method-assign]
        return contents


@pytest.mark.parametrize("closed", [False, True])
def test_each_read_of_an_opening_that_fails_is_a_store_error(closed):
    files, _ = stored(1, 12, closed=closed, snapshots=True)
    problems: list[tuple[str, str]] = []
    while True:
        failing = FailingReads(files, len(problems))
        store = Store(PATH, failing)
        try:
            store.check_described()
            store.about()
            store.check_ranks()
            found = scan_store(store)
            store.begin_term(found, 1, "always")
            break
        except StoreError as error:
            problems.append((failing.path, str(error)))
    assert len(problems) > 30
    assert [text for path, text in problems if path not in text or "Input/output error" not in text] == []
    failing.left = 1 << 20
    assert scan_store(store).epoch == found.epoch


def test_what_cannot_be_looked_up_is_not_taken_for_missing(tmp_path: Path):
    assert not DISK.exists(str(tmp_path / "a"))
    (tmp_path / "a").write_text("")
    assert DISK.exists(str(tmp_path / "a"))
    assert not DISK.exists(str(tmp_path / "a" / "b"))
    with pytest.raises(OSError, match="File name too long"):
        DISK.exists(str(tmp_path / ("a" * 300)))
    with pytest.raises(StoreError, match="the store cannot be read: .*File name too long"):
        Store(str(tmp_path / ("a" * 300))).about()
