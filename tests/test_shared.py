"""Arrays in memory that two ends share: what is read is what was put, and the room comes back."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mutations import hostile
from plain_graph import fresh_rng

from mgraph import shared as module
from mgraph.errors import DeviceError, MgraphError
from mgraph.exchange.segment import Place, Segment
from mgraph.plain import NotPlain, pack, unpack
from mgraph.shared import AT, COMMON, LARGE, Common, Shared, _Room, is_large

MIB = 1 << 20


class Loop:
    """An event loop that calls at once."""

    call_soon_threadsafe = staticmethod(lambda call: call())
    call_later = staticmethod(lambda delay, call: call())


def ends(nbytes: int = 16 * MIB, tell=lambda places: None) -> tuple[Shared, Shared]:
    segment, place = Shared.make(nbytes)
    try:
        return Shared.of_client(segment, Loop, tell), Shared.of_worker(place.encode(), Loop, tell)
    finally:
        Segment.unlink(place)


def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    n = int(rng.integers(LARGE // 8, LARGE // 2))
    made = rng.integers(0, 2**63, n, np.int64)
    return {
        "whole": made,
        "narrow": made.astype(rng.choice(["u1", "i1", "u2"]), order="C").repeat(8),
        "floats": made.astype("f4").repeat(2),
        "truths": (made % 2 == 0).repeat(8),
        "times": made.view("datetime64[ns]"),
        "strided": made.repeat(2)[::2],
        "rows": made[: n // 2 * 2].reshape(2, -1),
        "turned": made[: n // 2 * 2].reshape(2, -1).T,
    }


@pytest.mark.parametrize("back", [False, True], ids=["to the worker", "to the client"])
def test_what_is_read_is_what_was_put_and_the_room_comes_back(back):
    rng = fresh_rng()
    gone = []
    sender, receiver = reversed(ends(tell=gone.extend)) if back else ends(tell=gone.extend)
    free = list(sender._room._free)
    for _ in range(5):
        given = arrays(rng)
        put = sender.put({**given, "n": 3, "small": np.arange(3)}, wait=False)
        assert put["n"] == 3 and put["small"].tolist() == [0, 1, 2]
        views = {name: receiver.view(put[name]) for name in given}
        for name, array in given.items():
            assert not views[name].flags.writeable and views[name].dtype == array.dtype
            np.testing.assert_array_equal(views[name], array)
        part = views.pop("whole")[5:7]  # refers to the memory, too
        views.clear()
        assert len(gone) == len(given) - 1
        del part
        sender.free(gone)
        gone.clear()
        assert sender._room._free == free and sender._room._taken == {}


def test_an_array_for_all_readers_is_written_once_and_its_room_comes_back_after_the_last():
    segment, place = Shared.make(2 * MIB)
    common, pairs = Common(segment, 3), [ends(MIB) for _ in range(3)]
    for client, worker in pairs:
        client.common = common
        worker.map_common(place.encode())
        worker._loop = SimpleNamespace(call_soon_threadsafe=lambda call: None)  # places are taken below
    Segment.unlink(place)
    free = list(common._room._free)
    for round_number in range(4):
        array = np.arange(LARGE) + round_number
        own = [client.put({"own": array[:-1]}, wait=False) for client, _ in pairs]  # of the same place in each
        put = common.put({"a": array, "b": array.astype("u1"), "n": 3})
        assert put["n"] == 3 and sorted(common._unread.values()) == [3, 3]
        for reader, (client, worker) in enumerate(pairs):
            for name, of in ("a", array), ("b", array.astype("u1")):
                np.testing.assert_array_equal(worker.view(put[name]), of)
            np.testing.assert_array_equal(worker.view(own[reader]["own"]), array[:-1])
            assert common._room._free != free
            client.free(worker.take_read())
            assert client._room._taken == {}
        assert common._room._free == free and common._unread == {}

    # An array that does not fit, one that is not sent, and one whose copy fails.
    assert common.put({"a": np.zeros(2 * MIB, np.int8)}) is None
    put = common.put({"a": array})
    for client, _ in pairs:
        client.take_back(put)
    assert common._room._free == free
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(module, "_fill", lambda *_: 1 / 0)
        common.put({"a": array, "b": array})
    assert common._room._free == free


def test_an_offset_past_the_common_memory_is_refused():
    _, place = Shared.make(MIB)
    _, worker = ends(MIB)
    with pytest.raises(MgraphError, match=rf"8 bytes at {COMMON} are not in a segment of {MIB}"):
        worker.view({AT: [COMMON, "<i8", [1]]})
    worker.map_common(place.encode())
    Segment.unlink(place)
    with pytest.raises(MgraphError, match=rf"8 bytes at {MIB - 6} are not in a segment of {MIB}"):
        worker.view({AT: [COMMON + MIB - 6, "<i8", [1]]})


def test_places_freed_by_an_answer_are_not_reported_again():
    told, waiting = [], []
    sender, receiver = ends(tell=told.append)
    receiver._loop = SimpleNamespace(
        call_soon_threadsafe=lambda call: call(), call_later=lambda _, call: waiting.append(call)
    )
    places = []
    for _ in range(3):
        put = sender.put({"a": np.arange(LARGE)}, wait=False)
        receiver.view(put["a"])  # and nothing refers to it any more
        places.append(put["a"]["mgraph shared"][0])
        if len(places) == 1:
            assert receiver.take_read() == (places[0],)
    assert told == [] and len(waiting) == 1
    waiting.pop()()
    assert told == [tuple(places[1:])] and receiver.take_read() == ()
    receiver.view(sender.put({"a": np.arange(LARGE)}, wait=False)["a"])
    assert len(waiting) == 1  # asked again


def test_ranges_do_not_overlap_and_come_back_whatever_the_order():
    rng = fresh_rng()
    room, taken = _Room(4096, MIB), {}
    for _ in range(500):
        if taken and rng.random() < 0.45:
            room.give(taken.pop(rng.choice(list(taken)))[0])
            continue
        sizes = rng.integers(1, 40_000, rng.integers(1, 4)).tolist()
        before = list(room._free)
        places = room.take(sizes)
        if places is None:
            assert room._free == before
            continue
        for place, size in zip(places, sizes, strict=True):
            assert place >= 4096 and place + size <= MIB
            assert all(place + size <= first or first + n <= place for first, n in taken.values())
            taken[place] = place, size
    for place in rng.permutation(list(taken)).tolist():
        room.give(place)
        room.give(place)  # nothing
    assert room._free == [(4096, MIB)]


def test_what_finds_no_room_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(module, "ROOM_SECONDS", 0.2)
    sender, _ = ends(MIB)
    array = np.arange(2 * LARGE)  # half a MiB
    put = sender.put({"a": array}, wait=True)
    assert is_large(array) and isinstance(put["a"], dict)
    began = time.monotonic()
    assert sender.put({"a": array}, wait=False)["a"] is array
    assert time.monotonic() - began < 0.1
    assert sender.put({"a": array}, wait=True)["a"] is array
    assert sender.put({"a": array.repeat(8)}, wait=True)["a"].size == 16 * LARGE  # never fits: no wait
    threading.Timer(0.05, sender.free, [[put["a"]["mgraph shared"][0]]]).start()
    again = sender.put({"a": array}, wait=True)
    assert again["a"] is array  # it has waited in vain before, and does not hope again
    time.sleep(0.1)
    put = sender.put({"a": array}, wait=True)
    threading.Timer(0.05, sender.take_back, [put]).start()
    assert isinstance(sender.put({"a": array}, wait=True)["a"], dict)
    monkeypatch.setattr(module, "ROOM_SECONDS", 60)
    threading.Timer(0.05, sender.close).start()
    assert sender.put({"a": array}, wait=True)["a"] is array


def test_a_copy_that_fails_gives_its_room_back(monkeypatch):
    sender, _ = ends()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sender.put({"a": np.arange(LARGE)}, wait=False)
    assert sender._room._taken == {}


def test_what_cannot_be_shared_or_is_not_there():
    with pytest.raises(DeviceError, match="bytes of shared memory cannot be had in /dev/shm"):
        Shared.make(1 << 60)
    with pytest.raises(DeviceError, match="cannot be mapped: No such file"):
        Shared.of_worker(Place("/dev/shm/mgraph-not-there", "00", 4096, {}).encode(), Loop, lambda places: None)
    for name in ("mgraph-\0", "mgraph-\ud800"):  # no names of files
        with pytest.raises(DeviceError, match="is no segment of 4096 bytes in /dev/shm"):
            Shared.of_worker(Place(f"/dev/shm/{name}", "00", 4096, {}).encode(), Loop, lambda places: None)
    sender, receiver = ends(MIB)
    with pytest.raises(MgraphError, match="8 bytes at 1048570 are not in a segment of 1048576"):
        receiver.view({"mgraph shared": [MIB - 6, "<i8", [1]]})
    assert sender.view({"other": 1}) == {"other": 1}


# ---- hostile bytes ---------------------------------------------------------------------------------------------------


def places(count: int) -> None:
    """Map segments at mutated places."""
    _, place = Shared.make(1 << 16)
    try:
        hostile(lambda data: Segment.open(Place.decode(data)), [place.encode()], count, (DeviceError,))
    finally:
        Segment.unlink(place)


def arrays_in_messages(count: int) -> None:
    """Read the arrays of mutated messages."""
    sender, receiver = ends()
    put = sender.put({"array": np.arange(LARGE), "rows": np.ones((2, LARGE))}, wait=False)

    def read(data: bytes) -> None:
        for value in dict(unpack(data)).values():
            np.asarray(receiver.view(value)).tobytes()

    refused = (MgraphError, TypeError, ValueError, OverflowError, MemoryError)
    hostile(read, [pack(put), pack({"a": {AT: [4096, "|O", [8]]}})], count, refused)


def test_hostile_places_and_arrays():
    places(500)
    arrays_in_messages(500)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_100_000_hostile_places_and_arrays():
    places(50_000)
    arrays_in_messages(50_000)


def test_only_a_file_of_this_user_in_shared_memory_is_mapped(tmp_path, monkeypatch):
    segment, place = Shared.make(1 << 16)
    try:
        (tmp_path / "file").write_bytes(bytes(segment.data))
        with pytest.raises(DeviceError, match="is no segment of 65536 bytes in /dev/shm"):
            Segment.open(Place(str(tmp_path / "file"), place.token, place.nbytes, {}))
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        with pytest.raises(DeviceError, match="it is another user's"):
            Segment.open(place)
    finally:
        Segment.unlink(place)


@pytest.mark.parametrize("kind", ["|O", "i4,O", "<U4", "V8"])
def test_an_array_of_other_values_than_numbers_is_refused(kind):
    _, receiver = ends()
    with pytest.raises(NotPlain, match="names no dtype of numbers or times"):
        receiver.view({AT: [4096, kind, [1]]})
