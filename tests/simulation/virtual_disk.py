"""A disk that is slow, full, fails, tears and lies: `crashing.CrashingFiles` with the faults of a simulation."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any

from crashing import CrashingFiles, Inode, MemoryContents, MemoryFile
from fibers import Process, World

from mgraph.log.files import _moved

__all__ = ["Disk", "Faults", "ReadFile"]


class Faults:
    """What a disk does wrong, each with its probability per operation.

    Attributes
    ----------
    eio, full : float
        An operation fails; a write, an allocation, a new file or a new folder finds no room. A write that fails leaves
        a part, and a sync that fails may lose what was written. After that of a folder, later ones write nothing until
        the folder is changed again.
    unread : float
        A read fails: of bytes, of the names in a folder, or of whether something is there. All reads of the same path
        then fail for up to a second.
    lost, lying : float
        A write goes to another place; a sync returns, and has done nothing. Only these two are damage that a program
        cannot see.
    slow : float
        An operation that takes some time takes long.
    """

    def __init__(self, eio: float, full: float, unread: float, lost: float, lying: float, slow: float) -> None:
        self.eio, self.full, self.unread = eio, full, unread
        self.lost, self.lying, self.slow = lost, lying, slow

    @property
    def damaging(self) -> bool:
        """True if the disk may damage what it was given."""
        return self.lost > 0 or self.lying > 0


class _Lock:
    """The lock of a file, which ends with its process."""

    def __init__(self, locks: dict[str, _Lock], path: str, process: Process) -> None:
        self._locks, self._path, self.process = locks, path, process
        locks[path] = self
        process.at_death.append(self.close)

    def close(self) -> None:
        if self._locks.get(self._path) is self:
            del self._locks[self._path]

    truncate = write = flush = lambda self, *args: None


class ReadFile(MemoryContents):
    """A file whose reads fail now and then."""

    def __init__(self, files: Disk, path: str, data: bytes) -> None:
        super().__init__(data)
        self._files, self._path = files, path

    def read(self, at: int, parts: Sequence[Any]) -> int:
        self._files.look(self._path)
        return super().read(at, parts)


class _File(MemoryFile):
    """A file whose writes are short, and go elsewhere now and then."""

    _files: Disk

    def write(self, at: int, parts: Sequence[Any]) -> None:
        # The product's loop over short writes.
        _moved(self._write, 0, at, parts)

    def _write(self, descriptor: int, views: list[memoryview], at: int) -> int:
        data, rng, faults = b"".join(views), self._files.rng, self._files.faults
        try:
            self._files.tick("write", self.path)
        except OSError:
            self._inode.write(at, data[: rng.randrange(len(data) + 1)])
            raise
        if len(data) > 1 and rng.random() < 0.1:
            data = data[: rng.randrange(1, len(data))]
        self._inode.write(at + 512 if rng.random() < faults.lost else at, data)
        return len(data)

    def sync(self) -> None:
        try:
            self._files.tick("sync", self.path)
        except OSError:
            self._inode.lose(self._files.rng)
            raise
        if self._files.rng.random() >= self._files.faults.lying:
            self._inode.sync()


class Disk(CrashingFiles):
    """The files of all workers.

    Parameters
    ----------
    world : World
    faults : Faults
    synced : callable
        Called when a rank has synced a file of its log.
    """

    def __init__(self, world: World, faults: Faults, synced: Callable[[], None]) -> None:
        super().__init__(self._operate)
        self.world, self.faults, self.rng, self.synced = world, faults, world.rng, synced
        self.locks: dict[str, _Lock] = {}
        self._unreadable: dict[str, float] = {}  # until when

    def _operate(self, what: str, path: str) -> None:
        """Take some time, or fail. The process may be gone meanwhile."""
        world, faults, rng = self.world, self.faults, self.rng
        if world.fiber is None:  # the disk itself crashes
            return
        if what == "sync":
            world.sleep(0.0002 + rng.random() * (0.005 if rng.random() < 1 - faults.slow else 0.3))
            if "/term-" in path:
                self.synced()
        elif rng.random() < 0.3:
            world.sleep(rng.random() * (0.001 if rng.random() < 1 - faults.slow else 0.2))
        else:
            world.give_way()
        eio, full = what in ("write", "sync", "sync folder"), what in ("allocate", "create", "mkdir")
        eio |= faults.eio > 0 and what in ("rename", "truncate", "allocate", "create", "mkdir")
        full |= faults.full > 0 and what == "write"
        if eio and rng.random() < faults.eio:
            raise OSError(errno.EIO, "Input/output error", path)
        if full and rng.random() < faults.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def look(self, path: str) -> None:
        """Fail, if the seed says so, to read something, and all of the same path for some time."""
        if not self.faults.unread or self.world.fiber is None:
            return
        if self.rng.random() < self.faults.unread:
            self._unreadable[path] = self.world.now + self.rng.random()
        if self._unreadable.get(path, 0.0) > self.world.now:
            raise OSError(errno.EIO, "Input/output error", path)

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
        return ReadFile(self, path, self.read(path))

    def open(self, path: str) -> Any:
        if path not in self.now:
            self.tick("create", path)
            if path not in self.now:  # another process may have made it meanwhile
                self._change(None, path, Inode())
        inode = self.now[path]
        assert inode is not None
        return _File(self, path, inode)

    def remove(self, path: str) -> None:
        for name in sorted((name for name in self.now if name == path or name.startswith(f"{path}/")), reverse=True):
            self.tick("remove", name)
            if name in self.now:  # no other process has removed it meanwhile
                self._change(name, None, self.now[name])

    def lock(self, path: str) -> Any:
        fiber = self.world.fiber
        assert fiber is not None
        self.world.give_way()
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        if path not in self.now:
            self._change(None, path, Inode())
        return _Lock(self.locks, path, fiber.process)

    def flip(self, folder: str) -> tuple[str, int]:
        """Flip a bit of a file; return its path and the offset."""
        files = [(path, inode) for path, inode in sorted(self.now.items()) if inode and path.startswith(folder)]
        path, inode = self.rng.choice([(path, inode) for path, inode in files if any(inode.data)])
        at = self.rng.randrange(len(inode.data.rstrip(b"\0")))
        inode.data[at] ^= 1 << self.rng.randrange(8)
        inode.sync()
        inode.disk = bytes(inode.data)
        return path, at

    def stopped(self, rng: random.Random) -> Disk:
        """Return what the disk has after its machine has stopped and is started again."""
        after = Disk(self.world, self.faults, self.synced)
        files = self.crashed(rng)
        after.now, after.disk = files.now, files.disk
        return after
