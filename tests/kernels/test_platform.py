"""What kernels ask of the machine means the same on a GPU, on the CPU, and on the CPU with 32-lane tiles."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.device import Device

TILE = """
struct TileOps {  // one tile an item: each lane writes what it got
    static constexpr int lanes = WIDTH;
    i64 n;
    i64* size;
    u32* ballot;
    u8* any;
    u32* match;
    i64* shfl;
    f64* sum;
    i64* scan;
    u32* most;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 at = i * WIDTH + tile.rank(), value = (at * 7919) % 1000;
            size[at] = tile.size();
            ballot[at] = tile.ballot(value % 3 == 0);
            any[at] = tile.any(value % 41 == 0);
            match[at] = tile.match((u32)(value % 5));
            shfl[at] = tile.shfl(value << 40, tile.size() - 1 - tile.rank());
            sum[at] = tile.sum((f64)value);
            scan[at] = tile.scan(value);
            most[at] = tile.most((u32)value);
            tile.sync();
        }
    }
};
"""


@pytest.mark.parametrize("width", [1, 4, 8, 16, 32])
def test_tile(machine, width):
    device, kernels = machine(TILE, WIDTH=width)
    n = 37
    out = {
        name: device.zeros(n * width, dtype)
        for name, dtype in {
            "size": np.int64, "ballot": np.uint32, "any": np.uint8, "match": np.uint32, "shfl": np.int64,
            "sum": np.float64, "scan": np.int64, "most": np.uint32,
        }.items()
    }  # fmt: skip
    kernels.TileOps(n, n=n, **out)
    got = {name: device.to_host(array).reshape(n, width) for name, array in out.items()}
    size = int(got["size"][0, 0])
    assert size in (1, width)
    value = (np.arange(n * width).reshape(n, width) * 7919 % 1000)[:, :size]
    bits = ((value % 3 == 0) << np.arange(size)).sum(axis=1, keepdims=True)
    same = (value % 5)[:, :, None] == (value % 5)[:, None, :]
    expected = {
        "ballot": bits, "any": (value % 41 == 0).any(axis=1, keepdims=True),
        "match": (same << np.arange(size)).sum(axis=2), "shfl": value[:, ::-1] << 40,
        "sum": value.sum(axis=1, keepdims=True), "scan": value.cumsum(axis=1), "most": value.max(axis=1, keepdims=True),
    }  # fmt: skip
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name][:, :size], np.broadcast_to(array, (n, size)), name)


BLOCK = """
struct BlockSums {  // one block an item: shared memory, two barriers
    static constexpr int lanes = 256;
    i64 n;
    const i64* values;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        SHARED(i64, partial, 256);
        Block block;
        for (i64 i : grid.items(block, n)) {
            i64 mine = 0;
            for (i64 j = block.rank(); j < 1000; j += block.size()) mine += values[i * 1000 + j];
            partial[block.rank()] = mine;
            block.sync();
            if (block.rank() == 0) {
                i64 sum = 0;
                for (int l = 0; l < block.size(); ++l) sum += partial[l];
                sums[i] = sum;
            }
            block.sync();
        }
    }
};
"""


def test_block_shares_memory_between_barriers(machine):
    device, kernels = machine(BLOCK)
    values = np.random.default_rng(0).integers(0, 1000, (23, 1000))
    sums = device.zeros(23, np.int64)
    kernels.BlockSums(23, n=23, values=device.asarray(values.ravel()), sums=sums)
    np.testing.assert_array_equal(device.to_host(sums), values.sum(axis=1))


LARGE = """
struct Reverse {  // one block an item, of more lanes than most kernels have, and with more shared memory
    static constexpr int lanes = LANES;
    static constexpr int shared = 120000;
    i64 n;
    i64* values;
    i64* sizes;
    DEVICE void operator()(Grid grid) const {
        SHARED_LARGE(i64, copy, 15000);
        Block block;
        for (i64 i : grid.items(block, n)) {
            for (int j = block.rank(); j < 15000; j += block.size()) copy[j] = values[i * 15000 + j];
            block.sync();
            for (int j = block.rank(); j < 15000; j += block.size()) values[i * 15000 + j] = copy[14999 - j];
            block.sync();
            if (block.rank() == 0) sizes[i] = block.size();
        }
    }
};
"""


@pytest.mark.parametrize("lanes", [256, 512, 1024])
def test_blocks_may_be_large(machine, lanes):
    device, kernels = machine(LARGE, LANES=lanes)
    values = np.random.default_rng(0).integers(0, 1000, (5, 15000))
    given, sizes = device.asarray(values.ravel().copy()), device.zeros(5, np.int64)
    kernels.Reverse(5, n=5, values=given, sizes=sizes)
    np.testing.assert_array_equal(device.to_host(given).reshape(5, -1), values[:, ::-1])
    assert device.kind == "cpu" or (device.to_host(sizes) == lanes).all()


COVER = """
struct Lanes {
    static constexpr int lanes = 1;
    i64 n;
    i64* times;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) atomic_add(times + i, (i64)1);
    }
};
template <int W> DEVICE void cover(Grid grid, i64 n, i64* times) {
    Tile<W> tile;
    for (i64 i : grid.items(tile, n))
        if (tile.rank() == 0) atomic_add(times + i, (i64)1);
}
struct Tiles8 {
    static constexpr int lanes = 8;
    i64 n;
    i64* times;
    DEVICE void operator()(Grid grid) const { cover<8>(grid, n, times); }
};
struct Tiles32 {
    static constexpr int lanes = 32;
    i64 n;
    i64* times;
    DEVICE void operator()(Grid grid) const { cover<32>(grid, n, times); }
};
struct Blocks {
    static constexpr int lanes = 256;
    i64 n;
    i64* times;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 i : grid.items(block, n))
            if (block.rank() == 0) atomic_add(times + i, (i64)1);
    }
};
"""


@pytest.mark.parametrize("kernel", ["Lanes", "Tiles8", "Tiles32", "Blocks"])
def test_items_are_covered_exactly_once(machine, kernel):
    device, kernels = machine(COVER)
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 255, 257, 1000, 20_011):
        for items in (n, 1, 5 * n):  # a launch may be sized by something else than what it deals
            times = device.zeros(n, np.int64)
            getattr(kernels, kernel)(items, n=n, times=times)
            assert (device.to_host(times) == 1).all(), (n, items)


ATOMICS = """
struct Atomics {  // all lanes on the same few cells
    static constexpr int lanes = 1;
    i64 n;
    i64* added;
    u64* added_u64;
    u32* added_u32;
    f32* added_f32;
    f64* added_f64;
    u32* bits;
    i64* least;
    u32* most;
    u32* first;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            atomic_add(added, i - 3), atomic_add(added_u64, (u64)i << 20), atomic_add(added_u32, (u32)i);
            atomic_add(added_f32, 1.0f), atomic_add(added_f64, 0.5);
            atomic_or(bits, 1u << (i & 31));
            atomic_min(least, 5 - i), atomic_max(most, (u32)i);
            if (load(first) == 0) atomic_cas(first, 0u, (u32)(i + 1));
        }
    }
};
struct Bits {
    static constexpr int lanes = 1;
    i64 n;
    const u64* value;
    i64* count;
    i64* lowest;
    i64* width;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            count[i] = popcount((u32)value[i]), lowest[i] = lowest_bit((u32)value[i]), width[i] = bit_width(value[i]);
    }
};
"""


def test_atomics(machine):
    device, kernels = machine(ATOMICS)
    n = 5000
    cells = {
        "added": np.int64, "added_u64": np.uint64, "added_u32": np.uint32, "added_f32": np.float32,
        "added_f64": np.float64, "bits": np.uint32, "least": np.int64, "most": np.uint32, "first": np.uint32,
    }  # fmt: skip
    out = {name: device.zeros(1, dtype) for name, dtype in cells.items()}
    kernels.Atomics(n, n=n, **out)
    got = {name: device.to_host(array)[0] for name, array in out.items()}
    total = n * (n - 1) // 2
    assert 1 <= got.pop("first") <= n
    assert got == {
        "added": total - 3 * n, "added_u64": total << 20, "added_u32": total, "added_f32": n, "added_f64": n / 2,
        "bits": 2**32 - 1, "least": 6 - n, "most": n - 1,
    }  # fmt: skip


def test_bit_counts(machine):
    device, kernels = machine(ATOMICS)
    values = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 0x1234567890ABCDEF]
    n = len(values)
    out = {name: device.zeros(n, np.int64) for name in ("count", "lowest", "width")}
    kernels.Bits(n, n=n, value=device.asarray(np.array(values, np.uint64)), **out)
    got = {name: device.to_host(array).tolist() for name, array in out.items()}
    low = [v & 0xFFFFFFFF for v in values]
    assert got["count"] == [v.bit_count() for v in low]
    assert got["lowest"] == [(v & -v).bit_length() - 1 for v in low]
    assert got["width"] == [v.bit_length() for v in values]


SEARCH = """
#include "kernels/search.cuh"
struct Search {
    static constexpr int lanes = 1;
    i64 n;
    i64 size;
    const u32* sorted;
    const u32* value;
    i64* lower;
    i64* upper;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            lower[i] = lower_bound(sorted, (i64)0, size, value[i]);
            upper[i] = upper_bound(sorted, (i64)0, size, value[i]);
        }
    }
};
"""


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_searches(machine, size):
    device, kernels = machine(SEARCH)
    rng = np.random.default_rng(size)
    array = np.sort(rng.integers(0, size + 2, size, dtype=np.uint32))
    value = np.concatenate([np.arange(size + 4, dtype=np.uint32), [2**32 - 1]]).astype(np.uint32)
    n = len(value)
    out = {name: device.zeros(n, np.int64) for name in ("lower", "upper")}
    kernels.Search(n, n=n, size=size, sorted=device.asarray(array), value=device.asarray(value), **out)
    np.testing.assert_array_equal(device.to_host(out["lower"]), np.searchsorted(array, value, "left"))
    np.testing.assert_array_equal(device.to_host(out["upper"]), np.searchsorted(array, value, "right"))


ROWS = """
#include "structures/first_batch.cuh"
struct LastRows {  // one lane: how many keys come before each of the rows [first, last)
    static constexpr int lanes = 1;
    FirstBatch numbers;
    const u64* keys;
    i64 first;
    i64 last;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items((i64)1))
            numbers.rows(Tile<1>{}, keys, first, last, [=](i64 r, i64 k) { out[r - first + i] = k; });
    }
};
"""


@pytest.mark.parametrize("rows", [100, 2**32 - 2, 2**32 - 1])
def test_rows_up_to_the_last_id_and_one_more(machine, rows):
    device, kernels = machine(ROWS)
    keys = device.asarray(np.array([(rows - 3) << 32 | 1, (rows - 3) << 32 | 5, (rows - 1) << 32 | 7], np.uint64))
    acts, before = device.asarray(np.array([7], np.uint32)), device.asarray(np.array([0, 3], np.uint32))
    out = device.zeros(5, np.int64)
    numbers = {"acts": acts, "before": before, "n": 3, "total": 3}
    kernels.LastRows(1, numbers=numbers, keys=keys, first=rows - 4, last=rows + 1, out=out)
    assert Device.to_host(out).tolist() == [0, 0, 2, 2, 3]


MEET = """
struct Rounds {  // one lane an item: what its right neighbour had in the round before, and one more
    static constexpr int lanes = 1;
    static constexpr int persistent = 1;
    i64 n;
    i64 rounds;
    i64* values;  // two rows
    u64* arrived;
    DEVICE void operator()(Grid grid) const {
        u64 goal = 0;
        for (i64 r = 0; r < rounds; ++r) {
            const i64* old = values + r % 2 * n;
            i64* now = values + (r + 1) % 2 * n;
            for (i64 i : grid.items(n)) store(now + i, load(old + (i + 1) % n) + 1);
            grid.meet(arrived, goal);
        }
    }
};
"""


@pytest.mark.parametrize("n", [1, 300, 20_000])
@pytest.mark.parametrize("rounds", [0, 1, 40])
def test_blocks_that_meet(machine, n, rounds):
    device, kernels = machine(MEET)
    first = np.random.default_rng(n).integers(0, 1000, n)
    values, spare = device.asarray(np.concatenate([first, np.zeros(n, np.int64)])), device.zeros(2 * n, np.int64)
    arrived = device.zeros(1, np.uint64)
    for other in (n // 2 + 1, 1):  # by other numbers of blocks before: the word need not be cleared
        kernels.Rounds(other, n=other, rounds=3, values=spare, arrived=arrived)
    kernels.Rounds(n, n=n, rounds=rounds, values=values, arrived=arrived)
    got = device.to_host(values).reshape(2, n)[rounds % 2]
    np.testing.assert_array_equal(got, np.roll(first, -rounds) + rounds)


DRAW = """
struct Drawn {  // blocks draw items from a counter until there are no more
    static constexpr int lanes = 256, draws = 1;
    i64 n;
    i64* next;
    u32* seen;
    DEVICE void operator()(Grid) const {
        SHARED(i64, drawn, 1);
        Block block;
        for (;;) {
            block.sync();
            if (block.rank() == 0) *drawn = atomic_add(next, (i64)1);
            block.sync();
            if (*drawn >= n) return;
            if (block.rank() == 0) atomic_add(seen + *drawn, 1u);
        }
    }
};
"""


@pytest.mark.parametrize("n", [1, 300, 20_000])
def test_items_that_blocks_draw(machine, n):
    device, kernels = machine(DRAW)
    next, seen = device.zeros(1, np.int64), device.zeros(n, np.uint32)
    kernels.Drawn(n, n=n, next=next, seen=seen)
    assert (device.to_host(seen) == 1).all()


OWNED = """
struct Owned {  // one lane per word
    static constexpr int lanes = 1;
    i64 n;
    u32* set;
    u32* cleared;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            or_into_owned_word(set + i, (u32)i);
            and_into_owned_word(cleared + i, (u32)i);
        }
    }
};
"""


def test_owned_words(machine):
    device, kernels = machine(OWNED)
    n, values = 10_007, np.random.default_rng(0).integers(0, 2**32, 10_007, np.uint32)
    both, ids = device.asarray(values.copy()), np.arange(n, dtype=np.uint32)
    cleared = device.asarray(values.copy())
    kernels.Owned(n, n=n, set=both, cleared=cleared)
    np.testing.assert_array_equal(device.to_host(both), values | ids)
    np.testing.assert_array_equal(device.to_host(cleared), values & ids)
