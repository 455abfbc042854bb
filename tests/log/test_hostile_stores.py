"""Stores and tails full of hostile bytes run no code, end no process, and are refused by name."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from crashing import CrashingFiles, Inode
from mutations import PICKLE, Runs, hostile, mutated
from promise_records import note
from stream_of_logs import PATH, content, stored

from mgraph.device import Device
from mgraph.errors import CapacityError, StoreError
from mgraph.log import record_columns, records, shared_memory_tail
from mgraph.log import snapshot as snapshot_module
from mgraph.log.files import DISK
from mgraph.log.records import HEADER
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.shared_memory_tail import PAGE, SharedMemoryTail, finish
from mgraph.log.store import Store

LOG = 0x7E5700000000C0DE


class NoHash:
    """A checksum that every content has, as from an attacker who computes the right ones."""

    def __init__(self, data: bytes = b"") -> None:
        pass

    def update(self, data: object) -> None:
        pass

    def intdigest(self) -> int:
        return 7

    def hexdigest(self) -> str:
        return f"{7:016x}"


class xxhash:  # it replaces the module
    xxh3_64 = NoHash

    @staticmethod
    def xxh3_64_intdigest(data: object) -> int:
        return 7


def stores(count: int, each: int) -> None:
    """Mutate a file of random stores, and read the store."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(count):
        files, told = stored(rng.randrange(1 << 30), 8, closed=rng.random() < 0.5, snapshots=rng.random() < 0.5)
        assert content(files) == told.made
        paths = [name for name, inode in files.now.items() if inode is not None and inode.data]
        others = [PICKLE, *(bytes(files.now[path].data) for path in paths)]
        for _ in range(each):
            after, path = CrashingFiles(), rng.choice(paths)
            after.now = dict(files.now)
            after.now[path] = Inode(mutated(bytes(files.now[path].data), rng, others))
            try:
                content(after)
            except (
                StoreError,
                CapacityError,
                MemoryError,
                AssertionError,
            ):  # the last where the content is another one
                pass
            except Exception as error:
                error.add_note(f"seed {seed}: {path} is {bytes(after.now[path].data)[:2000]!r}")
                raise
    assert not Runs.ran
    note("hostile", inputs=count * each)


@pytest.fixture(params=[True, False], ids=["checked", "right checksums"])
def checksums(request, monkeypatch):
    """With checksums that find each change, and with right ones for each content."""
    if not request.param:
        for module in (records, record_columns, snapshot_module):
            monkeypatch.setattr(module, "xxhash", xxhash)


def test_hostile_stores(checksums):
    stores(3, 40)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_100_000_hostile_stores(checksums):
    stores(500, 100)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", None), ("name", 7), ("rows", -1), ("nbytes", "9"), ("checksum", 1.5), ("pieces", [[1, 2]]),
     ("pieces", 3), ("pieces", [[1, 2, "3"]])],
)  # fmt: skip
def test_a_snapshot_whose_files_are_described_in_another_way_is_refused(field, value):
    stores = (stored(seed, 8, closed=True, snapshots=True)[0] for seed in range(100))
    files = next(files for files in stores if Store(PATH, files).snapshots())
    store = Store(PATH, files)
    snapshot = store.snapshots()[-1]
    first, *others = snapshot["files"]
    changed = {name: old for name, old in first.items() if name != field} | ({} if value is None else {field: value})
    store.describe(f"{snapshot['folder']}.json", {**snapshot, "files": [changed, *others]})
    with pytest.raises(StoreError, match=r"snapshot-\S+\.json describes its files as mgraph does not"):
        content(files)


def test_a_snapshot_whose_rows_end_early_is_refused():
    stores = (stored(seed, 8, closed=True, snapshots=True)[0] for seed in range(100))
    files = next(files for files in stores if Store(PATH, files).snapshots())
    store = Store(PATH, files)
    snapshot = store.snapshots()[-1]
    first, *others = snapshot["files"]
    data, (rows, nbytes, _) = files.now[store.at(first["name"])].data, first["pieces"][0]
    batch = 16 + int.from_bytes(data[12:16], "little")  # behind the schema
    data[batch:nbytes] = bytes(nbytes - batch)
    pieces = [(rows, nbytes, f"{records.checksum(bytes(data[:nbytes])):016x}"), *first["pieces"][1:]]
    store.describe(f"{snapshot['folder']}.json", {**snapshot, "files": [{**first, "pieces": pieces}, *others]})
    with pytest.raises(StoreError, match=r"rank-0000.arrow: the bytes from 0 on are not what mgraph writes \(End of"):
        content(files)


def test_keys_of_a_snapshot_that_are_no_table_are_refused():
    with pytest.raises(StoreError, match=r"keys.arrow: the bytes from 0 on are not what mgraph writes"):
        snapshot_module.keys_in({"name": "keys.arrow", "kind": "string"}, np.zeros(100, np.uint8))


@pytest.mark.parametrize("kind", ["batch", "drop_vertices"])
def test_a_record_of_more_columns_than_it_has_bytes_is_damaged(kind):
    files, _ = stored(3, 12, closed=True, snapshots=False)
    shares = scan_store(Store(PATH, files)).shares
    entry = next(entry for parts in shares for entry in parts if entry.kind == kind and entry.n)
    data = files.now[entry.path].data
    head = data[entry.at : entry.at + HEADER - 8]
    head[24:32] = ((1 << 63) - 1).to_bytes(8, "little")
    data[entry.at : entry.at + HEADER] = head + records.checksum(bytes(head)).to_bytes(8, "little")
    with pytest.raises(StoreError, match=rf"{entry.path}, offset {entry.at}: a record that was synced is damaged"):
        content(files)


@pytest.fixture
def tail(tmp_path, monkeypatch):
    """A tail that a killed process has left, with two records that its file lacks; how to read it with other bytes."""
    monkeypatch.setattr(shared_memory_tail, "FOLDER", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir()
    store = tmp_path / "store"
    folder = store / "term-000001" / "rank-0000"
    segments = Segments(DISK, str(folder), LOG, 3 * PAGE)
    made = SharedMemoryTail(2 * PAGE, LOG, str(folder))
    made.begin_segment(segments.path, segments.end)
    parts = records.draft("batch", {"src": np.arange(9, dtype=np.uint32), "dst": np.arange(9, dtype=np.uint32)}, 1, 0)
    at = segments.end
    for _ in range(2):
        place = at
        for part in [Device.staged(piece) for piece in parts.parts]:
            data = np.frombuffer(bytes(part), np.uint8)
            for view in made.views(place, len(data)):
                view[:] = data[: len(view)]
                data = data[len(view) :]
            place += part.nbytes
        at += parts.size
    made.publish(segments.end, at)
    image, path = Path(made.path).read_bytes(), Path(made.path)
    made.close(keep=True)
    segments.close()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        path.chmod(0o600)
        finish(str(store))
        shared_memory_tail._remove_leftovers()

    yield read, image
    path.unlink(missing_ok=True)


def tails(tail, count: int) -> None:
    read, image = tail
    # Most changes in the first page: the words, and the JSON after them.
    about = image[: shared_memory_tail.TEXT + 400]
    hostile(lambda head: read(head + image[len(head) :]), [about], count, (StoreError,))
    hostile(read, [image], count // 4, (StoreError,))


def test_hostile_tails(tail):
    tails(tail, 200)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_100_000_hostile_tails(tail):
    tails(tail, 80_000)


def test_a_tail_of_another_user_is_not_mapped(tail, monkeypatch):
    _, image = tail
    path = Path(shared_memory_tail.FOLDER) / "mgraph.log-0"
    path.write_bytes(image)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(OSError, match="another user"):
        shared_memory_tail._LeftTail(str(path))
