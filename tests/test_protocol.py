"""Messages as they travel: every kind there and back, answers in parts, and errors that do and do not pickle."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from typing import get_args

import distributed  # noqa: F401  # its tblib makes the exceptions that there are by then picklable: so before ours
import numpy as np
import pytest
from plain_graph import fresh_rng

import mgraph.errors
from mgraph import protocol
from mgraph.errors import CapacityError, MgraphError, StoreError, UnknownVertex
from mgraph.failures import Stale, decode_error, encode_error, plain, with_place
from mgraph.plain import pack
from mgraph.protocol import (
    Abort,
    Beat,
    Call,
    Close,
    Done,
    Failure,
    Freed,
    Hello,
    Message,
    Part,
    Publish,
    Result,
    ShardState,
    Share,
    Turn,
    Wanted,
    Welcome,
    answer_messages,
    from_dict,
    to_dict,
)

STATE = ShardState(3, 4, 1, 5, 1 << 33, 6, 7, 8, 0.5, 1 << 62, True, "rank 1: the commit failed")

MESSAGES = [
    Hello("g", 1, 3),
    Hello("g", 0, 1, version=2, patience=0.5),
    Welcome(),
    Call(0, 0, "inspect", {}),
    Call(7, 2, "update", {"epoch": 4, "op": None, "weights": [1.5], "nested": {"a": (1, 2)}}, ("r1", "r2")),
    Abort(8, 2),
    Close(9),
    Publish(10, "roads", b"card", 3, b"known"),
    Publish(11, None),
    Turn(12),
    Wanted(12),
    Done(12),
    Done(12, 4, b"known"),
    Part(7, "values", b"some", 3, 8),
    Share(-2, b"place"),
    Freed((0, 4096)),
    Result(7, {"epoch": 4}, STATE),
    Result(7, {}, ShardState(), (4096, 8192)),
    Failure(7, b"\x80\x00", STATE),
    Beat(),
    Beat("parse (step 3)"),
]


def test_every_kind_of_message_is_here():
    assert {type(message) for message in MESSAGES} == set(get_args(Message))


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_a_message_arrives_as_it_was(message):
    assert from_dict(to_dict(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_a_message_arrives_by_way_of_lists(message):
    """MessagePack, in which Dask writes headers, has no tuples."""

    def listed(value):
        if isinstance(value, dict):
            return {key: listed(item) for key, item in value.items()}
        return list(map(listed, value)) if isinstance(value, tuple) else value

    if isinstance(message, Call):
        message = message._replace(args={})
    assert from_dict(listed(to_dict(message))) == message


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_what_travels_is_a_dict_of_its_own(message):
    before = repr(message)
    travelling = to_dict(message)
    assert type(travelling) is dict
    assert travelling["type"] == type(message).__name__.lower()
    travelling.clear()
    assert repr(message) == before


def test_the_state_of_a_shard_travels_as_one_object_of_plain_numbers():
    """Dask measures each entry of a dict that it sends: twelve of them cost as much as the rest of a small answer."""
    state = STATE._replace(edges=np.int64(6), seconds=np.float32(0.5), in_doubt=np.bool_(True))
    packed = to_dict(Result(7, {}, state))["state"]
    assert type(packed) is bytes
    assert b"numpy" not in packed
    found = from_dict(to_dict(Result(7, {}, state))).state
    assert found == state
    assert [type(value) for value in found] == [type(value) for value in STATE]


def test_every_field_of_a_state_arrives_in_its_place():
    for number, name in enumerate(STATE._fields):
        state = ShardState()._replace(**{name: f"{number}"})
        assert from_dict(to_dict(Failure(1, b"", state))).state == state


def test_arrays_are_handed_on_and_not_copied():
    array = np.arange(5)
    assert to_dict(Part(1, "ids", array, 0, 5))["array"] is array
    assert to_dict(Call(1, 0, "update", {"src": array}))["args"]["src"] is array


@pytest.mark.parametrize("kind", ["nonsense", None, "Call", 3, ""])
def test_types_that_there_are_not(kind):
    with pytest.raises(MgraphError, match=f"unknown message type {kind!r}; it is one of hello, welcome, call"):
        from_dict({"type": kind, "seq": 1})
    with pytest.raises(MgraphError, match="unknown message type None"):
        from_dict({})


@pytest.mark.parametrize("fields", [{"type": "close"}, {"type": "close", "seq": 1, "colour": "blue"}])
def test_fields_that_are_missing_or_too_many(fields):
    with pytest.raises(TypeError):
        from_dict(fields)


def test_nothing_of_dask_is_needed():
    code = "import sys, mgraph.protocol; print(sorted({'dask', 'distributed'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


# ---- answers in parts ------------------------------------------------------------------------------------------------


def reassembled(messages: list[Part | Result]) -> dict:
    *parts, result = messages
    names = list(dict.fromkeys(part.name for part in parts))
    return {**result.value, **{n: np.concatenate([p.array for p in parts if p.name == n]) for n in names}}


def test_large_arrays_travel_in_parts_in_order_and_the_rest_after_them(monkeypatch):
    monkeypatch.setattr(protocol, "PART_BYTES", 100)
    rng = fresh_rng()
    for dtype in (np.uint8, np.float32, np.int64):
        for n in (0, 1, 100 // dtype().itemsize, 100 // dtype().itemsize + 1, 1000):
            value = {"large": rng.integers(0, 100, n).astype(dtype), "small": np.arange(3), "epoch": 5, "none": None}
            messages = list(answer_messages(9, value, STATE))
            *parts, result = messages
            assert [type(part) for part in parts] == [Part] * len(parts)
            assert all(part.seq == 9 and part.name == "large" and 0 < part.array.nbytes <= 100 for part in parts)
            assert (result.seq, result.state) == (9, STATE)
            assert bool(parts) == (value["large"].nbytes > 100)
            assert ("large" in result.value) == (not parts)
            found = reassembled(messages)
            assert found.keys() == value.keys()
            np.testing.assert_array_equal(found["large"], value["large"])
            assert found["large"].dtype == dtype
            assert "large" in value  # the answer itself is left as it is


def test_several_large_arrays_and_items_longer_than_a_part(monkeypatch):
    monkeypatch.setattr(protocol, "PART_BYTES", 5)
    value = {"one": np.arange(4.0), "two": np.arange(3, dtype=np.int16)}
    messages = list(answer_messages(1, value, ShardState()))
    assert [(m.name, len(m.array)) for m in messages[:-1]] == [*[("one", 1)] * 4, ("two", 2), ("two", 1)]
    assert [(m.first, m.total) for m in messages[:-1]] == [*[(i, 4) for i in range(4)], (0, 3), (2, 3)]
    assert messages[-1].value == {}
    for name, array in reassembled(messages).items():
        np.testing.assert_array_equal(array, value[name])


def test_an_answer_without_arrays_is_one_message():
    assert list(answer_messages(2, {}, STATE)) == [Result(2, {}, STATE)]


# ---- errors ----------------------------------------------------------------------------------------------------------

FAMILY = [getattr(mgraph.errors, name) for name in mgraph.errors.__all__]


@pytest.mark.parametrize("kind", [*FAMILY, Stale], ids=lambda kind: kind.__name__)
def test_every_error_of_ours_arrives_as_what_it_is(kind):
    error = decode_error(encode_error(kind("rank 1: no room")))
    assert (type(error), str(error)) == (kind, "rank 1: no room")
    assert not hasattr(error, "__notes__")
    assert type(with_place(error, "step 3")) is kind


@pytest.mark.parametrize("error", [ZeroDivisionError("by 0"), MemoryError(), KeyError("a"), OSError(2, "no file")])
def test_other_errors_arrive_with_the_workers_traceback(error):
    try:
        raise error
    except Exception as raised:
        found = decode_error(encode_error(raised))
    assert (type(found), found.args) == (type(error), error.args)
    (note,) = found.__notes__
    assert note.startswith("on the worker:\nTraceback")
    assert "test_protocol.py" in note


class Demanding(Exception):
    """Its constructor wants more than its message."""

    def __init__(self, what: str, more: int) -> None:
        super().__init__(f"{what} {more}")


class Holding(Exception):
    """Its constructor takes no message."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def test_errors_that_cannot_be_made_again_keep_their_type_and_text():
    class Local(Exception):
        pass

    wanted = {Demanding("a", 1): "Demanding: a 1", Holding(): "Holding: holds a lock", Local("b"): "Local: b"}
    for error, text in wanted.items():
        found = decode_error(encode_error(error))
        assert (type(found), str(found)) == (MgraphError, text)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("x")])
def test_errors_that_would_end_a_process_or_a_task_are_reported_and_not_raised(error):
    found = decode_error(encode_error(error))
    assert type(found) is MgraphError
    assert str(found).startswith(type(error).__name__)
    assert plain(error).__cause__ is error
    forged = {"module": type(error).__module__, "name": type(error).__name__, "text": "", "args": (), "attributes": {}}
    assert type(decode_error(pack(forged))) is MgraphError  # nor from a worker that is not ours


@pytest.mark.parametrize("error", [StopIteration(1), StopAsyncIteration()])
def test_errors_that_end_an_iteration_are_reported_too(error):
    """A future or a generator that raises one is a defect of its own."""
    assert type(plain(error)) is MgraphError
    assert type(decode_error(encode_error(error))) is MgraphError


def test_notes_of_a_reported_error_are_kept():
    error = SystemExit("no file")
    error.add_note("in step 3")
    assert plain(error).__notes__ == ["in step 3"]
    kept = ValueError("x")
    assert plain(kept) is kept


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", encode_error(CapacityError("x"))[:-3], pickle.dumps(ValueError("x"))]
)
def test_bytes_that_are_no_error_are_an_error(data):
    found = decode_error(data)
    assert type(found) is MgraphError
    assert "a worker raised an error that cannot be read" in str(found)


@pytest.mark.parametrize("name", ["Unknown", "object", "print", "UserWarning"])
def test_only_exceptions_that_are_imported_here_are_made(name):
    fields = {"module": "builtins", "name": name, "text": "x", "args": ("x",), "attributes": {"rank": 2}}
    found = decode_error(pack(fields))
    wanted = UserWarning if name == "UserWarning" else MgraphError
    assert (type(found), vars(found)["rank"]) == (wanted, 2)
    assert type(decode_error(pack({**fields, "module": "a.module.of.the.workers"}))) is MgraphError


def test_an_error_with_a_path_keeps_it():
    found = decode_error(encode_error(FileNotFoundError(2, "No such file", "/a/b")))
    assert (type(found), found.filename) == (FileNotFoundError, "/a/b")


class Unsendable(MgraphError):
    """Has an attribute that is not plain."""

    def __init__(self, *message: object) -> None:
        super().__init__(*message)
        self.lock = threading.Lock()


@pytest.mark.parametrize("kind", [CapacityError, ZeroDivisionError, Unsendable, SystemExit])
def test_what_the_program_decides_by_arrives_with_every_error(kind):
    """Fields, also of an error that another one stands for; and they stay where an error is told with its place."""
    error = kind("no room")
    vars(error).update(rank=3, done=np.arange(12).reshape(2, 6))
    found = decode_error(encode_error(error))
    assert vars(found)["rank"] == 3
    assert vars(found)["done"].tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    told = with_place(found, "step 2")
    assert vars(told)["rank"] == 3
    assert vars(told)["done"] is vars(found)["done"]
    assert with_place(CapacityError("no room"), "rank 4", 4).rank == 4


def test_the_reason_of_an_error_of_a_store_arrives():
    error = decode_error(encode_error(StoreError("the store is in use", reason="in use")))
    assert (str(error), error.reason) == ("the store is in use", "in use")
    assert with_place(error, "rank 1").reason == "in use"
    assert StoreError("damaged").reason is None


def test_an_error_is_reported_with_its_place():
    cause = OSError("disk")
    error = UnknownVertex("src[3] is 9")
    error.__cause__ = cause
    told = with_place(error, "step 2, epoch 5")
    assert (type(told), str(told), told.__cause__) == (UnknownVertex, "src[3] is 9 (step 2, epoch 5)", cause)
    other = ZeroDivisionError("by 0")
    assert with_place(other, "step 2") is other
    assert other.__notes__ == ["step 2"]
