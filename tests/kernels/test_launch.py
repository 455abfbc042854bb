"""Typed launch wrappers: what they take, and what they refuse before anything runs."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mgraph.device import Device
from mgraph.kernels import Struct, View, load
from mgraph.kernels.cuda import CARVEOUT, _Division, _launcher
from mgraph.kernels.source import Field, KernelSource

ADD = """
struct Pair {
    const i64* left;
    const i64* right;
};
struct Add {  // one lane an item
    static constexpr int lanes = 1;
    Pair pair;
    i64 n;
    f64 scale;
    u64 offset;
    f64* sum;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 right = pair.right ? pair.right[i] : 0;
            sum[i] = scale * (f64)(pair.left[i] + right) + (f64)offset;
        }
    }
};
"""


LATE = """
struct Late {  // its last item takes milliseconds
    static constexpr int lanes = 1;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            for (volatile i64 turn = 0; i == n - 1 && turn < 2000000; turn = turn + 1) {}
            out[i] = i + 1;
        }
    }
};
"""


@pytest.fixture
def add(write):
    return load(Device("cpu", threads=2), write(ADD)).Add


def fields(**others):
    left, right = np.arange(5), np.arange(5) * 10
    return {"pair": {"left": left, "right": right}, "n": 5, "scale": 0.5, "offset": 1, "sum": np.zeros(5)} | others


def test_runs(add):
    given = fields()
    add(5, **given)
    np.testing.assert_array_equal(given["sum"], np.arange(5) * 5.5 + 1)


def test_a_launch_ends_after_the_last_helper(write):
    late, n = load(Device("cpu", threads=3), write(LATE)).Late, 100_000
    for _ in range(20):  # the last item is a helper's at one time or another
        out = np.zeros(n, np.int64)
        late(n, n=n, out=out)
        assert out[-1] == n
        np.testing.assert_array_equal(out, np.arange(1, n + 1))


@pytest.mark.parametrize("kind", [dict, Struct, lambda **f: View("x.cuh", "Pair", f)], ids=["dict", "Struct", "View"])
def test_structs_come_as_dict_struct_or_view(add, kind):
    given = fields(pair=kind(left=np.arange(5), right=None))
    add(5, **given)
    np.testing.assert_array_equal(given["sum"], np.arange(5) * 0.5 + 1)


def test_numbers_of_numpy_are_numbers(add):
    given = fields(n=np.int64(5), scale=np.float64(2), offset=np.uint64(3))
    add(np.int64(5), **given)
    np.testing.assert_array_equal(given["sum"], np.arange(5) * 22 + 3)


@pytest.mark.parametrize("items", [0, -1])
def test_no_items_no_launch(add, items):
    given = fields()
    add(items, **given)
    assert not given["sum"].any()


WRONG = {
    "dtype": ({"sum": np.zeros(5, np.float32)}, r"Add.sum is float64\*, got an array of float32"),
    "not contiguous": ({"sum": np.zeros(10)[::2]}, "Add.sum must be contiguous"),
    "no array": ({"sum": [0.0] * 5}, r"Add.sum is float64\*, got \[0.0"),
    "an address": ({"sum": 4096}, r"Add.sum is float64\*, got 4096"),
    "a fraction for an integer": ({"n": 2.5}, "Add.n is int64, got 2.5"),
    "text for a number": ({"scale": "x"}, "Add.scale is float64, got 'x'"),
    "negative for unsigned": ({"offset": -1}, "Add.offset is uint64, got -1"),
    "past 64 bits": ({"n": 1 << 64}, "Add.n is int64"),
    "unknown field": ({"more": 1}, r"Add\(\) got an unexpected keyword argument 'more'"),
    "a struct's dtype": ({"pair": {"left": np.zeros(5), "right": None}}, r"pair.left is int64\*, got .* float64"),
    "a struct's field left out": ({"pair": {"left": None}}, r"pair takes \['left', 'right'\], got \['left'\]"),
    "no struct": ({"pair": None}, "Add.pair is a struct, got None"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_fields_are_type_errors(add, case):
    others, message = WRONG[case]
    given = fields(**others)
    with pytest.raises(TypeError, match=message):
        add(5, **given)
    if isinstance(given["sum"], np.ndarray):
        assert not given["sum"].any()


def test_a_field_left_out_is_a_type_error(add):
    given = fields()
    del given["scale"]
    with pytest.raises(TypeError, match=r"Add\(\) missing 1 required keyword-only argument: 'scale'"):
        add(5, **given)


def test_last_fields_can_be_bound(add):
    given = fields()
    bound = add.bind(**{name: given.pop(name) for name in ("scale", "offset", "sum")})
    for n in (3, 5):
        bound(n, **{**given, "n": n})
        np.testing.assert_array_equal(bound.fixed["sum"][:n], np.arange(n) * 5.5 + 1)
        assert n == 5 or not bound.fixed["sum"][n:].any()
    with pytest.raises(TypeError, match=r"Add\(\) missing 1 required keyword-only argument: 'pair'"):
        bound(5, n=5)
    with pytest.raises(TypeError, match="Add takes .*'offset', 'sum'.*got .*'scale'"):
        add.bind(scale=1.0, sum=np.zeros(5))  # not the last


def test_all_fields_can_be_bound(add):
    bound = add.bind(**fields())
    bound(0)
    assert not bound.fixed["sum"].any()
    bound(5)
    np.testing.assert_array_equal(bound.fixed["sum"], np.arange(5) * 5.5 + 1)


def test_unknown_kernel(write):
    with pytest.raises(AttributeError, match=r"no kernel 'Sub' here, only \['Add'\]"):
        load(Device("cpu"), write(ADD)).Sub  # noqa: B018


@pytest.mark.gpu
def test_host_arrays_do_not_go_to_a_gpu(write):
    with pytest.raises(TypeError, match="the kernel runs on cuda:0"):
        load(Device("cuda"), write(ADD)).Add(5, **fields())


def test_threads_hand_over_their_own_fields_to_a_gpu():
    """The driver is called without the GIL: while one thread is in it, another one packs."""
    seen, inside = {}, threading.Barrier(2)

    def launch_kernel(*given: int) -> None:
        inside.wait(10)  # both have packed
        _, buffer, _, size, _ = (ctypes.c_void_p * 5).from_address(given[-1])
        seen[threading.current_thread().name] = ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)

    cuda = SimpleNamespace(
        driver=SimpleNamespace(launchKernel=launch_kernel, funcGetAttribute=lambda *_: 0, funcSetAttribute=None),
        get_current_stream=lambda: SimpleNamespace(ptr=0),
    )
    kernel = KernelSource("K", (Field("n", "int64"), Field("m", "int64")), 1, False)
    launch = _launcher(SimpleNamespace(xp=SimpleNamespace(cuda=cuda)), SimpleNamespace(ptr=1), kernel, 100, 1 << 17)
    names = [name * 16 for name in "ab"]
    team = [threading.Thread(target=launch, args=(name.encode(), 10, 1), name=name) for name in names]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join(10)
    assert seen == {name: name.encode() for name in names}


def test_kernels_beside_the_background_divide_memory_as_it_does(monkeypatch):
    """A multiprocessor divides its memory only while it is idle, and kernels of the background stay on it."""
    now, asked = [0.0], list[tuple[int, int, int]]()
    driver = SimpleNamespace(
        funcGetAttribute=lambda what, address: 1000 * address, funcSetAttribute=lambda *what: asked.append(what)
    )
    monkeypatch.setattr("mgraph.kernels.cuda.monotonic", lambda: now[0])
    monkeypatch.setattr(_Division, "background_until", 0.0)
    # Blocks with 5000 and 27,000 bytes, and two of 80,000 that need more than the common division.
    few, some, many = (
        _Division(driver, SimpleNamespace(ptr=ptr), SimpleNamespace(shared=shared), 228 << 10, blocks)
        for ptr, shared, blocks in ((5, 0, 1), (7, 20_000, 1), (9, 71_000, 2))
    )
    some.ask(False)
    assert asked == []  # the driver chooses
    few.ask(True)
    for kernel in (some, some, few, many):
        kernel.ask(False)
    assert asked == [(5, CARVEOUT, 58), (7, CARVEOUT, 58), (9, CARVEOUT, 70)]
    # The background has ended.
    asked.clear()
    now[0] = 1.0
    for kernel in (some, some, few, many):
        kernel.ask(False)
    assert asked == [(7, CARVEOUT, -1), (5, CARVEOUT, -1), (9, CARVEOUT, -1)]
