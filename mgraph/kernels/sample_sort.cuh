// Sample sort of keys, alone or PLACED, for a GPU: splitters from a sorted sample cut the keys into buckets of a few
// thousand, blocks distribute tiles of keys to the buckets' slots, and one block per bucket sorts it to its place. Keys
// are read and written twice.
#pragma once
#include "kernels/scan.cuh"
#include "kernels/small_tile.cuh"
#include "kernels/tile_sort.cuh"

constexpr int few_buckets = 4096, many_buckets = placed ? 12288 : 16384;  // maxima of DealToFew and DealToMany

struct Sorting {  // common fields of the kernels; offsets are in `scratch`
    const u32* src;
    const u32* dst;
    const u64* keys;  // if src is null
    i64 n;
    // a word that counts finished tiles; then, of 32 bits, each bucket's number of keys and first place in the result
    u64* scratch;
    i64 sample;  // sorted; `every` of them per bucket
    i64 sample_places;
    i64 slots;
    i64 slot_places;
    i64 every;
    i64 buckets;  // at least 2
    i64 room;  // keys per slot
    // Reads key i without a branch, so a lane's loads overlap: keys are columns with a stride of 2.
    DEVICE u64 at(i64 i) const {
        const u32 *high = src ? src : (const u32*)keys + 1, *low = src ? dst : (const u32*)keys;
        i64 k = src ? i : 2 * i;
        return (u64)load_once(high + k) << 32 | load_once(low + k);
    }
    DEVICE u32* counts() const { return (u32*)(scratch + 1); }
    DEVICE u32* starts() const { return counts() + buckets; }
};

struct Buckets : Sorting {
    DEVICE Buckets(const Sorting& sort) : Sorting(sort) {}
    DEVICE Item item(i64 i) const { return Item::of(at(i), (u32)i); }
    // Bucket b holds the items above splitter b - 1 and up to splitter b; b < buckets - 1. Where two splitters are
    // equal, the second's bucket would be empty: it takes the keys equal to it, which may be very many and need no
    // slot.
    DEVICE Item splitter(i64 b) const { return array(sample, sample_places).get((b + 1) * every); }
    DEVICE bool of_equals(i64 b) const {
        return !placed && b > 0 && b < buckets - 1 && splitter(b - 1).key == splitter(b).key;
    }
    DEVICE bool holds(i64 b, const Item& item) const {
        return (b == 0 || splitter(b - 1) < item) && (b == buckets - 1 || !(splitter(b) < item)) &&
               !(of_equals(b + 1) && item.key == splitter(b).key);
    }
    DEVICE ItemArray slot(i64 b) const { return array(slots, slot_places).from(b * room); }
    DEVICE ItemArray array(i64 keys_at, i64 places_at) const {
        return {scratch + keys_at, (u32*)(scratch + places_at)};
    }
};

// Sorts the sample in tiles, one block per tile, with one key from each range of the keys. Clears the counts.
struct SortSample {
    static constexpr int lanes = SmallTile::lanes;
    Sorting sorting;
    i64 to;
    i64 places_to;
    DEVICE void operator()(Grid grid) const {
        SHARED(u64, room, 2 * SmallTile::room);
        SHARED(u32, places, placed ? 2 * SmallTile::room : 1);
        SmallTile tile{Block(), room, placed ? places : nullptr};
        Buckets sort(sorting);
        i64 all = sort.every * sort.buckets;
        u64 share = ((u64)sort.n << 32) / (u64)all;  // the last 32 bits are a fraction
        for (i64 i : grid.items(sort.buckets)) sort.counts()[i] = 0;
        for ([[maybe_unused]] i64 i : grid.items(1)) *sort.scratch = 0;
        for (i64 t : grid.items(tile.block, (all + tile_keys - 1) / tile_keys)) {
            i64 first = t * tile_keys;
            auto pick = [=](int i) -> SmallTile::Item {  // a random key of its range
                u32 x = (u32)(first + i) * 0x9e3779b1u;
                x = (x ^ x >> 15) * 0x85ebca77u;
                u64 at = ((u64)(first + i) * share + ((u64)((x ^ x >> 13) >> 16) * share >> 16)) >> 32;
                return {sort.at((i64)at), (u32)at};
            };
            ItemArray out = sort.array(to, places_to).from(first);
            tile.sort((int)lesser(all - first, tile_keys), pick, out.keys, out.places);
        }
    }
};

// Distributes tiles of keys to slots, by a block. A table gives the splitters around each of equally wide cells, so a
// search takes few steps where keys are spread.
template <int most> struct Dealer {
    static constexpr int some = 8;  // keys per lane
    static constexpr int at_once = 8;  // concurrent loads or atomics per lane
    static constexpr int most_cells = 4096;
    static constexpr int bytes = most * (placed ? 16 : 12) + 16 + 4 * most_cells;
    Buckets sort;
    Block block;
    ItemArray splitters;  // [most]
    // [most + 1]: the tile's keys by bucket, then their first place in the slot; the last one is for no key
    u32* counts;
    int cells;  // a power of two
    u32* table;  // [cells]: splitters in cells before it, and including its own << 16
    DEVICE Dealer(const Sorting& given, u64* shared)
        : sort(given), splitters{shared, (u32*)(shared + most)}, counts((u32*)(shared + most) + (placed ? most : 0)),
          cells(lesser(1 << bit_width((u64)given.buckets), +most_cells)), table(counts + most + 4) {}

    DEVICE bool prepare() const {  // returns true if splitters repeat
        SHARED(u32, repeat, 1);
        int last = (int)sort.buckets - 2, size = block.size();
        if (block.rank() == 0) *repeat = 0;
        for (int first = block.rank(); first <= last; first += at_once * size) {
            Item one[at_once];
#pragma unroll
            for (int j = 0; j < at_once; ++j) one[j] = sort.splitter(lesser(first + j * size, last));
#pragma unroll
            for (int j = 0; j < at_once; ++j)
                if (first + j * size <= last) splitters.set(first + j * size, one[j]);
        }
        for (int b = block.rank(); b <= last + 1; b += size) counts[b] = 0;
        block.sync();
        for (int b = block.rank(); b < last; b += size)
            if (!placed && splitters.keys[b] == splitters.keys[b + 1]) store(repeat, 1u);
        for (int c = block.rank(); c < cells; c += size) table[c] = before(c) | before(c + 1) << 16;
        block.sync();
        return load(repeat);
    }
    DEVICE int cell(u64 key) const {
        u64 first = splitters.keys[0], range = splitters.keys[sort.buckets - 2] - first;
        return key <= first ? 0
                            : (int)lesser((key - first) >> greater(0, bit_width(range) - bit_width((u64)cells - 1)),
                                          (u64)cells - 1);
    }
    DEVICE u32 before(int c) const {  // splitters in cells before c
        u32 low = 0, high = (u32)sort.buckets - 1;
        while (low < high) {
            u32 middle = (low + high) >> 1;
            if (c == cells || cell(splitters.keys[middle]) < c) low = middle + 1;
            else high = middle;
        }
        return low;
    }
    DEVICE void find(const u64* mine, u32 place, u32* to) const {
        bool more = true;
#pragma unroll
        for (int j = 0; j < some; ++j) to[j] = table[cell(mine[j])];
        while (more) {
            more = false;
#pragma unroll
            for (int j = 0; j < some; ++j) {
                u32 low = to[j] & 0xffff, high = to[j] >> 16, middle = (low + high) >> 1;
                if (low == high) continue;
                if (above(middle, mine[j], place + j * block.size())) low = middle + 1;
                else high = middle;
                to[j] = low | high << 16;
                more |= low < high;
            }
        }
#pragma unroll
        for (int j = 0; j < some; ++j) to[j] &= 0xffff;
    }
    DEVICE bool above(u32 b, u64 key, u32 place) const {
        u64 splitter = splitters.keys[b];
        return splitter < key || (placed && splitter == key && splitters.places[b] < place);
    }
    DEVICE void deal(i64 first, bool repeat, bool ids, u32* largest) const {
        u64 mine[some];
        u32 to[some];
        int rank = block.rank(), step = block.size(), left = (int)lesser(sort.n - first, (i64)step * some);
#pragma unroll
        for (int j = 0; j < some; ++j) mine[j] = sort.at(first + lesser(rank + j * step, left - 1));
        find(mine, (u32)first + rank, to);
        if (repeat)
#pragma unroll
            for (int j = 0; j < some; ++j) to[j] += sort.of_equals(to[j] + 1) && sort.splitter(to[j]).key == mine[j];
        if (ids)
#pragma unroll
            for (int j = 0; j < some; ++j)
                largest[0] = greater(largest[0], (u32)(mine[j] >> 32)), largest[1] = greater(largest[1], (u32)mine[j]);
#pragma unroll
        for (int j = 0; j < some; ++j) {
            u32 bucket = rank + j * step < left ? to[j] : (u32)sort.buckets;
            to[j] = bucket | atomic_add(counts + bucket, 1u) << 16;
        }
        block.sync();
        reserve();
        block.sync();
#pragma unroll
        for (int j = 0; j < some; ++j) {
            u32 bucket = to[j] & 0xffff, place = counts[bucket] + (to[j] >> 16);
            if (rank + j * step >= left || place >= sort.room || (repeat && sort.of_equals(bucket))) continue;
            sort.slot(bucket).set(place, Item::of(mine[j], (u32)first + rank + j * step));
        }
        block.sync();
        for (i64 b = rank; b < sort.buckets; b += step) counts[b] = 0;
        block.sync();
    }
    DEVICE void reserve() const {  // places in the slots
        for (i64 first = block.rank(); first < sort.buckets; first += at_once * block.size()) {
            u32 got[at_once];
#pragma unroll
            for (int j = 0; j < at_once; ++j) {
                i64 b = first + j * block.size();
                got[j] = b < sort.buckets ? atomic_add(sort.counts() + b, counts[b]) : 0;
            }
#pragma unroll
            for (int j = 0; j < at_once; ++j)
                if (first + j * block.size() < sort.buckets) counts[first + j * block.size()] = got[j];
        }
    }
    // Turns the counts into places, in the last block to finish.
    DEVICE void close(u64 mine, u64 tiles) const {
        SHARED(bool, is_last, 1);
        if (block.rank() == 0) *is_last = mine && arrive(sort.scratch, mine) + mine == tiles;
        block.sync();
        u32 before = 0;
        for (i64 first = 0; *is_last && first < sort.buckets; first += block.size()) {
            i64 b = first + block.rank();
            u32 all, mine = b < sort.buckets ? load(sort.counts() + b) : 0, upto = scan(block, mine, all);
            if (b < sort.buckets) sort.starts()[b] = before + upto - mine;
            before += all;
        }
        block.sync();
    }
    DEVICE void run(Grid grid, u64* largest) const {
        bool repeat = prepare();
        u32 mine[2] = {};
        i64 keys = (i64)block.size() * some, tiles = (sort.n + keys - 1) / keys;
        u64 dealt = 0;
        for (i64 t : grid.items(block, tiles)) deal(t * keys, repeat, largest, mine), ++dealt;
        close(dealt, tiles);
        if (!largest) return;
        Tile<32> tile;
        for (int c = 0; c < 2; ++c) {
            u64 all = tile.most(mine[c]);
            if (tile.rank() == 0 && all > load(largest + c)) atomic_max(largest + c, all);
        }
    }
};

struct DealToFew {  // also reduces the largest ids
    static constexpr int lanes = 512;
    static constexpr int shared = Dealer<few_buckets>::bytes;
    Sorting sort;
    u64* largest;
    DEVICE void operator()(Grid grid) const {
        SHARED_LARGE(u64, room, shared / sizeof(u64));
        Dealer<few_buckets>(sort, room).run(grid, largest);
    }
};

struct DealToMany {
    static constexpr int lanes = 1024;
    static constexpr int shared = Dealer<many_buckets>::bytes;
    Sorting sort;
    u64* largest;
    DEVICE void operator()(Grid grid) const {
        SHARED_LARGE(u64, room, shared / sizeof(u64));
        Dealer<many_buckets>(sort, room).run(grid, largest);
    }
};

struct SortBuckets {  // sorts each bucket, one block per bucket
    static constexpr int lanes = TileSort::lanes;
    static constexpr int shared = TileSort::bytes;
    Sorting sorting;
    u64* keys;
    u32* places;
    DEVICE void operator()(Grid grid) const {
        SHARED_LARGE(u64, room, shared / sizeof(u64));
        SHARED(u32, found, 1);
        TileSort tile = TileSort::in(room);
        Buckets sort(sorting);
        for (i64 b : grid.items(tile.block, sort.buckets)) {
            i64 m = sort.counts()[b];
            ItemArray to = ItemArray{keys, places}.from(sort.starts()[b]), from = sort.slot(b);
            if (sort.of_equals(b)) {
                for (i64 i = tile.block.rank(); i < m; i += tile.block.size()) to.set(i, sort.splitter(b));
                continue;
            }
            if (m > sort.room) {  // the sample missed this: read all keys again
                if (tile.block.rank() == 0) *found = 0;
                tile.block.sync();
                for (i64 i = tile.block.rank(); i < sort.n; i += 8 * tile.block.size()) {
                    Item some[8];
#pragma unroll
                    for (int j = 0; j < 8; ++j) some[j] = sort.item(lesser(i + j * tile.block.size(), sort.n - 1));
#pragma unroll
                    for (int j = 0; j < 8; ++j)
                        if (i + j * tile.block.size() < sort.n && sort.holds(b, some[j]))
                            to.set(atomic_add(found, 1u), some[j]);
                }
                tile.block.sync();
                from = to;
            }
            tile.sort(m, [=](i64 i) { return from.get(i); }, to);
        }
    }
};
