// Sorts few keys stably, by a block in shared memory, with their places if `places` is given: runs of four in registers,
// then merges of runs of twice the length each round.
#pragma once

constexpr i64 tile_keys = 1024;

struct SmallTile {
    static constexpr int lanes = 256;
    static constexpr int four = 4;  // neighbouring keys per lane and step
    static constexpr int room = tile_keys + tile_keys / 16;
    struct Item {
        u64 key;
        u32 place;
    };
    struct Items {  // every 17th place is padding, to avoid bank conflicts of lanes that take fours
        u64* keys;
        u32* places;
        static DEVICE int at(int i) { return i + (i >> 4); }
        DEVICE u64 key(int i) const { return keys[at(i)]; }
        DEVICE Item get(int i) const { return {keys[at(i)], places ? places[at(i)] : 0}; }
        DEVICE void set(int i, const Item& item) const {
            keys[at(i)] = item.key;
            if (places) places[at(i)] = item.place;
        }
    };
    Block block;
    u64* keys;  // [2 * room]
    u32* places;  // [2 * room], or null

    // Sorts get(i), i < m <= tile_keys, to keys_out and places_out; all lanes of the block call it.
    template <class Get> DEVICE void sort(int m, Get get, u64* keys_out, u32* places_out) const {
        Items from{keys, places}, to{keys + room, places ? places + room : nullptr};
        for (int i = block.rank() * four; i < m; i += block.size() * four) start(get, i, lesser(m - i, +four), from);
        for (int width = four; width < m; width *= 2) {
            block.sync();
            for (int i = block.rank() * four; i < m; i += block.size() * four) merge(from, to, i, m, width);
            Items other = from;
            from = to, to = other;
        }
        block.sync();
        for (int i = block.rank(); i < m; i += block.size()) {
            Item item = from.get(i);
            keys_out[i] = item.key;
            if (places) places_out[i] = item.place;
        }
        block.sync();
    }
    // Sorts a run of four by exchanges of neighbours, which are stable.
    template <class Get> DEVICE void start(Get get, int at, int some, const Items& to) const {
        Item mine[four];
        for (int j = 0; j < four; ++j) {
            mine[j] = get(at + lesser(j, some - 1));
            if (j >= some) mine[j].key = ~(u64)0;
        }
        for (int round = 0; round < four; ++round)
            for (int j = round & 1; j + 1 < four; j += 2)
                if (mine[j + 1].key < mine[j].key) {
                    Item other = mine[j];
                    mine[j] = mine[j + 1], mine[j + 1] = other;
                }
        for (int j = 0; j < some; ++j) to.set(at + j, mine[j]);
    }
    // Merges four places of two runs of `width`, found by merge path. Of equal keys the first run's come first.
    DEVICE void merge(const Items& from, const Items& to, int at, int m, int width) const {
        int a = at & -2 * width, b = lesser(a + width, m), a_end = b, b_end = lesser(b + width, m), d = at - a;
        int low = greater(0, d - (b_end - b)), high = lesser(d, a_end - a);
        while (low < high) {
            int i = (low + high) >> 1;
            if (from.key(a + i) <= from.key(b + d - 1 - i)) low = i + 1;
            else high = i;
        }
        a += low, b += d - low;
        for (int j = 0; j < four && at + j < m; ++j) {
            bool second = a == a_end || (b < b_end && from.key(b) < from.key(a));
            to.set(at + j, from.get(second ? b : a));
            second ? ++b : ++a;
        }
    }
};
