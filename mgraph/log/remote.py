"""Object stores and other file systems of fsspec, as `Files`: for snapshots, which are written once.

They have no sync and no locks, so a log cannot be there. An object exists, whole, once it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgraph.errors import StoreError
from mgraph.log.files import DISK, Contents, File, Files

__all__ = ["Remote", "files_at", "is_remote"]


def is_remote(path: str) -> bool:
    """Return True for a URL, as in ``s3://bucket/folder``."""
    return "://" in path


def files_at(path: str) -> Files:
    """Return the file system of a path or URL."""
    return Remote(path) if is_remote(path) else DISK


class _Object(File):
    """An object for writing, which exists once it is closed."""

    def __init__(self, path: str, out: Any) -> None:
        self.path, self._out, self._at = path, out, 0

    def allocate(self, end: int) -> None:
        """Do nothing: no room can be reserved."""

    def write(self, at: int, parts: Sequence[Any]) -> None:
        """Append buffers."""
        assert at == self._at, "an object is written in its order"
        for part in parts:
            self._at += self._out.write(memoryview(part).cast("B"))

    def sync(self) -> None:
        """Do nothing: the object exists once it is closed."""

    def truncate(self, size: int) -> None:
        """Do nothing: the object is new."""
        assert size == 0 == self._at, "an object cannot be cut"

    def close(self) -> None:
        """Upload the rest; twice too."""
        self._out.close()


class _Parts(Contents):
    """Reads ranges of an object."""

    def __init__(self, fs: Any, key: str) -> None:
        self._fs, self._object = fs, key

    @property
    def size(self) -> int:
        """The bytes of the object."""
        return int(self._fs.size(self._object))

    def read(self, at: int, parts: Sequence[Any]) -> int:
        """Fill buffers with a single request."""
        # Requests take long, so ask for the bytes of all buffers at once.
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        data = memoryview(self._fs.cat_file(self._object, start=at, end=at + sum(map(len, views))))
        done = 0
        for view in views:
            piece = data[done : done + len(view)]
            view[: len(piece)] = piece
            done += len(piece)
        return done

    def close(self) -> None:
        """Do nothing: no file is open."""


class Remote(Files):
    """File system of fsspec.

    Parameters
    ----------
    url : str
        The URL of something on it. fsspec's implementation finds the credentials, such as in the environment.

    Raises
    ------
    StoreError
        fsspec, or its implementation for this protocol, is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec

            self._fs, _ = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise StoreError(f'{url} cannot be used: {error}; pip install "dask-mgraph[snapshots]"') from None

    def _key(self, path: str) -> str:
        return str(self._fs._strip_protocol(path))

    def open(self, path: str) -> File:
        """Open an object for writing."""
        return _Object(path, self._fs.open(self._key(path), "wb"))

    def folder(self, path: str) -> None:
        """Make a folder, on systems that have folders."""
        self._fs.makedirs(self._key(path), exist_ok=True)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        self._fs.invalidate_cache()
        try:
            keys = self._fs.ls(self._key(path), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in keys)

    def contents(self, path: str) -> Contents:
        """Open an object for reading."""
        return _Parts(self._fs, self._key(path))

    def read(self, path: str) -> bytes:
        """Return the bytes of an object."""
        return bytes(self._fs.cat_file(self._key(path)))

    def exists(self, path: str) -> bool:
        """Return True if the object or folder exists."""
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._key(path)))

    def replace(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace the content of an object, durably, by a rename.

        Some systems show half of an object that is written.
        """
        self._fs.pipe_file(self._key(f"{path}.tmp"), data)
        self.rename(f"{path}.tmp", path)

    def rename(self, path: str, new: str) -> None:
        """Rename an object."""
        self._fs.mv(self._key(path), self._key(new))

    def remove(self, path: str) -> None:
        """Remove an object, or a folder with its content, if it exists."""
        try:
            self._fs.rm(self._key(path), recursive=True)
        except FileNotFoundError:
            return

    def sync_folder(self, path: str) -> None:
        """Do nothing: names are durable at once."""

    touch_folder = sync_folder

    def lock(self, path: str) -> Any:
        """Raise `StoreError`: object stores have no locks."""
        raise StoreError(f"{path}: a log needs a file system with fsync and locks; give `snapshots` this place instead")
