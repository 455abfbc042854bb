"""A bit that flips anywhere in a store is found, or does no harm."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from crashing import CrashingFiles, Inode
from promise_records import note
from stream_of_logs import PATH, Graph, Told, content, stored

from mgraph.errors import StoreError
from mgraph.log.recovery_scan import scan_store
from mgraph.log.store import Store


def flipped(files: CrashingFiles, path: str, bit: int) -> CrashingFiles:
    """The same files but for one bit."""
    after = CrashingFiles()
    after.now = {name: inode and Inode(bytes(inode.data)) for name, inode in files.now.items()}
    inode = after.now[path]
    assert inode is not None
    inode.data[bit // 8] ^= 1 << bit % 8
    return after


def flip(seed: int, stores: int, flips: int) -> Counter[str]:
    """Flip bits, one at a time, in random stores; what became of them."""
    rng, outcomes = random.Random(seed), Counter[str]()
    for number in range(stores):
        files, told = stored(rng.randrange(1 << 30), 12, closed=rng.random() < 0.5, snapshots=rng.random() < 0.5)
        assert content(files) == told.made
        paths = [name for name, inode in files.now.items() if inode is not None and inode.data]
        for _ in range(flips):
            path = rng.choice(paths)  # small files too
            inode = files.now[path]
            assert inode is not None
            bit = rng.randrange(8 * len(inode.data))
            try:
                there = content(flipped(files, path, bit))
            except StoreError as error:
                outcomes["found" if "/data/store" in str(error) else f"no file is named in {error}"] += 1
            else:
                assert there == told.made, f"seed {seed}, store {number}: bit {bit} of {path} did harm"
                outcomes["harmless"] += 1
    return outcomes


def test_what_belongs_to_the_last_epoch_of_a_term():
    """Nothing after it in its log says that it was there, but the number of vertices of the next term does."""
    files, told, rng = CrashingFiles(), Told(), random.Random(1)
    files.folder("/data")
    for number in (2, 4):
        graph = Graph(files, told, rng, iter([]), snapshots=False)
        while not graph.attempt([number]):
            pass
        while number == 2 and not graph.attempt([3]):
            pass
        graph.close()
    assert content(files) == told.made == [2, 3, 4]
    (entry,) = (shares[0] for shares in scan_store(Store(PATH, files)).shares if shares[0].kind == "drop_vertices")
    damaged = flipped(files, entry.path, 8 * entry.at + 100)
    with pytest.raises(StoreError, match=rf"{entry.path}, offset {entry.at}: .* is damaged; .* up to epoch 1"):
        content(damaged)
    assert content(damaged, repair=True) == [2]


def test_a_sample_of_flips():
    outcomes = flip(1, stores=5, flips=30)
    print(outcomes)
    note("flips", flips=outcomes.total(), found=outcomes["found"], harmless=outcomes["harmless"])
    assert outcomes["found"] > 50
    assert outcomes["found"] + outcomes["harmless"] == 150


@pytest.mark.slow
def test_a_thousand_flips():
    outcomes = flip(2, stores=20, flips=100)
    print(outcomes)
    note("flips", flips=outcomes.total(), found=outcomes["found"], harmless=outcomes["harmless"])
    assert outcomes["found"] + outcomes["harmless"] == 2000
