"""Whatever happens to one file or folder of a closed store, it is not opened at another epoch without an error.

Each file and folder is deleted, zeroed, truncated, duplicated, renamed, swapped with each other one, copied over each
other one, and replaced by its copy of each earlier moment. The store opens as it was, or `StoreError` names
a file of it.
"""

from __future__ import annotations

from collections import Counter

import pytest
from plain_graph import fresh_rng
from promise_records import note
from tampering import PATH, Session, StoreInMemory, disk_of, scanned, tamper

from mgraph.errors import StoreError
from mgraph.log.manifest import Term
from mgraph.log.store import Store


def check(store: StoreInMemory) -> Counter[str]:
    """Open the store after each thing that may happen to it, and go on with it where that is possible."""
    outcomes = Counter[str]()
    assert store.opened() == (store.epoch, store.made)
    for case in tamper(store):
        try:
            assert_as_it_was(store.tampered(case.disks))
        except StoreError as error:
            outcomes["error" if PATH in str(error) else f"no file is named: {error}"] += 1
        except Exception as error:
            error.add_note(case.name)
            raise
        else:
            outcomes["harmless"] += 1
    return outcomes


def assert_as_it_was(store: StoreInMemory) -> None:
    """Assert that the store has its epoch, and also after another opening, which deletes no record."""
    made, epoch, records = list(store.made), store.epoch, store.records()
    assert store.opened() == (epoch, made)
    session = Session(store)
    assert store.epoch == epoch
    lost = records - store.records()
    assert not lost, f"{sum(lost.values())} segments with records were deleted or changed"
    session.change()
    session.close()
    assert store.opened() == (epoch + 1, [*made, made[-1] + 1])


@pytest.mark.parametrize("local", [False, True], ids=["shared", "local"])
@pytest.mark.parametrize(("ranks", "terms"), [(1, 1), (1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("snapshots", [False, True], ids=["", "snapshots"])
def test_one_file_or_folder(local, ranks, terms, snapshots):
    seed = int(fresh_rng().integers(1 << 30))
    print(seed)
    outcomes = check(StoreInMemory.build(seed, local, ranks, terms, snapshots=snapshots))
    print(outcomes)
    note("tampered", tampered_stores=outcomes.total(), found=outcomes["error"], harmless=outcomes["harmless"])
    assert outcomes["error"] > 10
    assert set(outcomes) == {"error", "harmless"}


@pytest.mark.parametrize("local", [False, True], ids=["shared", "local"])
def test_vertices_that_left_between_a_snapshot_and_the_next_term(local):
    """They belong to the epoch of the snapshot, so that no epoch is missing without the term of the snapshot."""
    store = StoreInMemory.empty(local, ranks=1)
    session = Session(store)
    session.change()
    session.change()
    session.snapshot(0)
    session.change(drop=True)
    session.close()
    session = Session(store)
    session.change()
    session.close()
    assert store.opened() == (3, [1, 2, 3, 4])
    term = f"{PATH}/term-000001"
    lost = store.tampered([{path: data for path, data in disk_of(store.disks[0]).items() if not path.startswith(term)}])
    gap = f"{PATH}: a snapshot or a log is missing, with vertices that left in epoch 2"
    with pytest.raises(StoreError, match=f"^{gap};"):
        lost.opened()
    _, stored = scanned(lost, repair=True)
    assert stored.epoch == 2
    assert stored.notes == [f"{gap}: epochs after 2 are given up"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("local", [False, True], ids=["shared", "local"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("terms", [1, 2, 3, 4])
@pytest.mark.parametrize("sync", ["always", "background"])
def test_every_file_and_folder(local, ranks, terms, sync):
    rng = fresh_rng()
    outcomes = Counter[str]()
    for snapshots in (False, True, True):
        seed = int(rng.integers(1 << 30))
        print(seed)
        outcomes += check(StoreInMemory.build(seed, local, ranks, terms, snapshots=snapshots, sync=sync))
    print(outcomes)
    note("tampered", tampered_stores=outcomes.total(), found=outcomes["error"], harmless=outcomes["harmless"])
    assert outcomes["error"] > 100
    assert set(outcomes) == {"error", "harmless"}


# ---- the same with one of the checks left out: it is found -----------------------------------------------------------


def heads_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "heads", lambda store, damaged=None: [])


def names_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Store, "terms", lambda store, damaged=None: [Term(**store.read(n)) for n in store._descriptions("term")]
    )


def logs_without_a_description_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    heads_are_not_read(patch)
    patch.setattr(Store, "undescribed", lambda store: [])
    patch.setattr(Store, "_has_records", lambda store, name: False)


@pytest.mark.parametrize(
    "left_out", [heads_are_not_read, names_are_not_compared, logs_without_a_description_are_not_looked_for]
)
def test_a_check_that_is_left_out_is_found(left_out, monkeypatch):
    stores = [StoreInMemory.build(seed, False, 1, 3, snapshots=False) for seed in range(5)]
    left_out(monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        for store in stores:
            check(store)
