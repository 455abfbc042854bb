"""A file system in memory that crashes: what was not synced is dropped, torn, or kept, in any combination."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from mgraph.log.files import Contents, Files

SECTOR = 512  #: bytes that are torn only together


class Crash(BaseException):
    """The machine stops here."""


class Inode:
    """A file: its bytes as programs see them, as the disk has them, and what was done to them since."""

    def __init__(self, data: bytes = b"") -> None:
        self.data, self.disk = bytearray(data), bytes(data)
        self.pending: list[tuple[int, bytes | None]] = []  # a write at an offset; or a new size

    def write(self, at: int, data: bytes) -> None:
        _put(self.data, at, data)
        self.pending.append((at, data))

    def resize(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.disk, self.pending = self._written(), []

    def _written(self) -> bytes:
        """What the disk has after all that is pending."""
        data = bytearray(self.disk)
        for at, piece in self.pending:
            if piece is None:
                _resize(data, at)
            else:
                _put(data, at, piece)
        return bytes(data)

    def lose(self, rng: random.Random) -> None:
        """Forget writes that could not be synced: as on Linux, programs read them, and no later sync writes them."""
        self.pending = [(at, piece) for at, piece in self.pending if piece is None or rng.random() < 0.5]

    def crashed(self, rng: random.Random) -> bytes:
        """What a disk may have of it."""
        if not self.pending or rng.random() < 0.2:
            return self.disk
        if rng.random() < 0.1:
            return self._written()
        data = bytearray(self.disk)
        order = self.pending if rng.random() < 0.5 else rng.sample(self.pending, len(self.pending))
        upto = rng.randint(0, len(order)) if rng.random() < 0.5 else len(order)
        for at, piece in order[:upto]:
            fate = rng.random()
            if fate < 0.3:
                continue
            if piece is None:
                _resize(data, at)
            elif fate < 0.7:
                _put(data, at, piece)
            else:
                _tear(data, at, piece, rng)
        return bytes(data)


def _put(data: bytearray, at: int, piece: bytes) -> None:
    if at > len(data):
        data.extend(bytes(at - len(data)))
    data[at : at + len(piece)] = piece


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _tear(data: bytearray, at: int, piece: bytes, rng: random.Random) -> None:
    """Some sectors of a write, or its first bytes."""
    if rng.random() < 0.5:
        _put(data, at, piece[: rng.randint(0, len(piece))])
        return
    place = at
    while place < at + len(piece):
        end = min((place // SECTOR + 1) * SECTOR, at + len(piece))
        if rng.random() < 0.5:
            _put(data, place, piece[place - at : end - at])
        place = end


class MemoryFile:
    """A file that is written."""

    def __init__(self, files: CrashingFiles, path: str, inode: Inode) -> None:
        self._files, self.path, self._inode = files, path, inode

    def allocate(self, end: int) -> None:
        self._files.tick("allocate", self.path)
        if end > len(self._inode.data):
            self._inode.resize(end)

    def write(self, at: int, parts: Sequence[Any]) -> None:
        self._files.tick("write", self.path)
        self._inode.write(at, b"".join(bytes(memoryview(part).cast("B")) for part in parts if len(part)))

    def sync(self) -> None:
        self._files.tick("sync", self.path)
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._files.tick("truncate", self.path)
        self._inode.resize(size)

    def close(self) -> None:
        """Nothing is synced by it."""


class MemoryContents(Contents):
    """The bytes of a file that is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, at: int, parts: Sequence[Any]) -> int:
        begin = at
        for part in parts:
            view = memoryview(part).cast("B")
            piece = self._data[at : at + len(view)]
            view[: len(piece)] = piece
            at += len(piece)
        return at - begin

    def close(self) -> None:
        """Nothing is open."""


class Unlocked:
    """A lock that is always to be had."""

    def close(self) -> None:
        """Nothing."""

    truncate = write = flush = lambda self, *args: None


class CrashingFiles(Files):
    """Files and folders in memory. `tick` is called before each operation, and may raise `Crash`.

    Names are durable when their folder was synced; of the others any may be lost, each rename as a whole. After a sync
    of a folder that failed, later ones write nothing until the folder is changed again.
    """

    def __init__(self, tick: Callable[[str, str], None] = lambda what, path: None) -> None:
        self.tick = tick
        self.now: dict[str, Inode | None] = {"/": None}  # folders are None
        self.disk: dict[str, Inode | None] = {"/": None}
        self.pending: dict[str, list[tuple[str | None, str | None, Inode | None]]] = {}
        self._given_up: set[str] = set()  # folders whose last sync failed, without a change since

    # ---- what a store does -------------------------------------------------------------------------------------------

    def open(self, path: str) -> Any:
        if path not in self.now:
            self.tick("create", path)
            self._change(None, path, Inode())
        inode = self.now[path]
        assert inode is not None
        return MemoryFile(self, path, inode)

    def folder(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for n in range(1, len(parts) + 1):
            name = "/" + "/".join(parts[:n])
            if name not in self.now:
                self.tick("mkdir", name)
                self._change(None, name, None)
                try:
                    self.sync_folder(parent(name))
                except OSError:
                    if name in self.now and not self.names(name):
                        self._change(name, None, None)
                    raise

    def names(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.now if name != "/" and parent(name) == path)

    def contents(self, path: str) -> Any:
        return MemoryContents(self.read(path))

    def read(self, path: str) -> bytes:
        inode = self.now.get(path)
        if inode is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return bytes(inode.data)

    def exists(self, path: str) -> bool:
        return path in self.now

    def rename(self, path: str, new: str) -> None:
        self.tick("rename", new)
        self._change(path, new, self.now[path])

    def remove(self, path: str) -> None:
        for name in sorted((name for name in self.now if name == path or name.startswith(f"{path}/")), reverse=True):
            self.tick("remove", name)
            self._change(name, None, self.now[name])

    def sync_folder(self, path: str) -> None:
        try:
            self.tick("sync folder", path)
        except OSError:
            self._given_up.add(path)
            raise
        if path not in self._given_up:
            self.make_durable(path)

    def touch_folder(self, path: str) -> None:
        self._given_up.discard(path)

    def make_durable(self, path: str) -> None:
        """Bring the names in a folder to the disk."""
        for change in self.pending.pop(path, []):
            _apply(self.disk, change)

    def lock(self, path: str) -> Any:
        return Unlocked()

    def _change(self, old: str | None, new: str | None, inode: Inode | None) -> None:
        if new is not None and parent(new) not in self.now:  # another process may have removed it
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", new)
        change = (old, new, inode)
        _apply(self.now, change)
        self.pending.setdefault(folder := parent(new or old or ""), []).append(change)
        self._given_up.discard(folder)

    # ---- what a disk has ---------------------------------------------------------------------------------------------

    def crashed(self, rng: random.Random) -> CrashingFiles:
        """The files after a machine has stopped now and is started again."""
        names = dict(self.disk)
        keep = rng.choice([0.0, 0.5, 0.8, 1.0])
        for changes in self.pending.values():
            for change in changes:
                if rng.random() < keep:
                    _apply(names, change)
        after = CrashingFiles()
        for name, inode in sorted(names.items()):
            if name == "/" or parent(name) in after.now:  # else its folder is lost
                after.now[name] = None if inode is None else Inode(inode.crashed(rng))
        after.disk = dict(after.now)
        return after


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _apply(names: dict[str, Inode | None], change: tuple[str | None, str | None, Inode | None]) -> None:
    old, new, inode = change
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = inode


class Later(Executor):
    """Runs what is submitted at once, or with `lazy` when it is told to."""

    def __init__(self, lazy: bool = False) -> None:
        self.lazy = lazy
        self._jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: function(*args, **kwargs)))
        if not self.lazy:
            self.run()
        return future

    def run(self) -> None:
        """Do what is queued."""
        while self._jobs:
            future, job = self._jobs.pop(0)
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.run()
