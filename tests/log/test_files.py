"""Files and folders of a disk that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mgraph.log.files import DISK


def test_a_folder_whose_name_cannot_be_synced_is_made_again(tmp_path: Path, monkeypatch):
    """A second sync may succeed without the name that the first one has lost."""
    path, synced, real = tmp_path / "a" / "b", list[str](), os.fsync

    def fails(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        if len(synced) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output error"):
        DISK.folder(str(path))
    assert not path.exists()
    DISK.folder(str(path))
    assert path.is_dir()
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a")]


def test_a_folder_is_not_made_in_one_that_another_rank_has_removed(tmp_path: Path, monkeypatch):
    """The other rank could not sync the name of that one."""
    path, mkdir = tmp_path / "term" / "rank", os.mkdir

    def late(folder: str) -> None:
        if folder == str(path):
            path.parent.rmdir()
        mkdir(folder)

    monkeypatch.setattr(os, "mkdir", late)
    with pytest.raises(FileNotFoundError):
        DISK.folder(str(path))
    assert not path.parent.exists()
    monkeypatch.setattr(os, "mkdir", mkdir)
    DISK.folder(str(path))
    assert path.is_dir()
