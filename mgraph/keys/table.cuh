// Hash table from users' keys to numbers, with open addressing. A slot holds a number; the keys lie in an array.
// One lane per key. Concurrent claims of a slot race on purpose: an atomic decides, and equal keys agree.
#pragma once
#include "kernels/search.cuh"
#include "kernels/splitmix.cuh"

constexpr u32 no_number = 0xffffffffu;

struct Keys {
    const i64* at;  // numbers, or the offsets of the texts
    const u8* text;  // null for numbers
    DEVICE static u64 word(const u8* p) {  // 8 bytes, unaligned; compiles to one load
        return (u64)p[0] | (u64)p[1] << 8 | (u64)p[2] << 16 | (u64)p[3] << 24 | (u64)p[4] << 32 | (u64)p[5] << 40 |
               (u64)p[6] << 48 | (u64)p[7] << 56;
    }
    DEVICE static u64 short_word(const u8* p, i64 n) {  // fewer than 8 bytes
        u64 w = 0;
        for (i64 i = 0; i < n; ++i) w |= (u64)p[i] << (8 * i);
        return w;
    }
    DEVICE u64 hash(i64 i) const {
        if (!text) return mix64((u64)at[i]);
        const u8* p = text + at[i];
        i64 n = at[i + 1] - at[i];
        if (n < 8) return mix64(short_word(p, n) ^ (u64)n << 56);
        u64 h = (u64)n;
        for (i64 k = 0; k + 8 < n; k += 8) h = mix64(h ^ word(p + k)) + splitmix_step;
        return mix64(h ^ word(p + n - 8));
    }
    DEVICE bool same(i64 i, const Keys& other, i64 j) const {
        if (!text) return at[i] == other.at[j];
        const u8 *p = text + at[i], *q = other.text + other.at[j];
        i64 n = at[i + 1] - at[i];
        if (other.at[j + 1] - other.at[j] != n) return false;
        if (n < 8) return short_word(p, n) == short_word(q, n);
        for (i64 k = 0; k + 8 < n; k += 8)
            if (word(p + k) != word(q + k)) return false;
        return word(p + n - 8) == word(q + n - 8);
    }
};

// Looks up the number of each key. no_number if it is unknown, or if its number is `known` or more.
struct FindKeys {
    static constexpr int lanes = 1;
    Keys keys;
    Keys names;  // the key of each number
    const u32* slots;
    i64 mask;
    i64 known;
    i64 n;
    u32* number;
    DEVICE void operator()(Grid grid) const {
        // Lookups in groups, stage by stage: hash, slot, key. The prefetches of a group hide its memory latency.
        for (i64 group : grid.items((n + in_flight - 1) / in_flight)) {
            i64 first = group * in_flight;
            int some = (int)lesser((i64)in_flight, n - first);
            u64 from[in_flight];
            for (int k = 0; k < some; ++k) {
                from[k] = keys.hash(first + k);
                prefetch(slots + (from[k] & (u64)mask));
            }
            for (int k = 0; k < some; ++k) {
                u32 there = slots[from[k] & (u64)mask];
                if (there != no_number) prefetch(names.at + there);
            }
            for (int k = 0; names.text && k < some; ++k) {
                u32 there = slots[from[k] & (u64)mask];
                if (there != no_number) prefetch(names.text + names.at[there]);
            }
            for (int k = 0; k < some; ++k) number[first + k] = find(first + k, from[k]);
        }
    }
    DEVICE u32 find(i64 i, u64 slot) const {
        for (;; ++slot) {
            u32 there = slots[slot & (u64)mask];
            if (there == no_number) return no_number;
            if (keys.same(i, names, there)) return there < known ? there : no_number;
        }
    }
};

// Hashes each key. A hash depends on the key alone, so it is the same on every device.
struct HashKeys {
    static constexpr int lanes = 1;
    Keys keys;
    i64 n;
    u64* hashes;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) hashes[i] = keys.hash(i);
    }
};

// Inserts the numbers `first` .. `first + n - 1`. Their keys are new and distinct.
struct AddKeys {
    static constexpr int lanes = 1;
    Keys names;
    u32* slots;
    i64 mask;
    i64 first;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 group : grid.items((n + in_flight - 1) / in_flight)) {
            i64 begin = first + group * in_flight;
            int some = (int)lesser((i64)in_flight, first + n - begin);
            u64 from[in_flight];
            for (int k = 0; k < some; ++k) {
                from[k] = names.hash(begin + k);
                prefetch_to_write(slots + (from[k] & (u64)mask));
            }
            for (int k = 0; k < some; ++k)
                for (u64 s = from[k]; atomic_cas(&slots[s & (u64)mask], no_number, (u32)(begin + k)) != no_number;
                     ++s) {}
        }
    }
};

// Inserts the keys `keys[places[k]]`, k < n. A slot keeps the least k of equal keys; `slot[k]` is the slot of key k.
struct ClaimKeys {
    static constexpr int lanes = 1;
    Keys keys;
    const i64* places;
    u32* slots;
    i64 mask;
    i64 n;
    i64* slot;
    DEVICE void operator()(Grid grid) const {
        for (i64 group : grid.items((n + in_flight - 1) / in_flight)) {
            i64 begin = group * in_flight;
            int some = (int)lesser((i64)in_flight, n - begin);
            u64 from[in_flight];
            for (int k = 0; k < some; ++k) {
                from[k] = keys.hash(places[begin + k]);
                prefetch_to_write(slots + (from[k] & (u64)mask));
            }
            for (int k = 0; k < some; ++k) slot[begin + k] = claim(begin + k, from[k]);
        }
    }
    DEVICE i64 claim(i64 k, u64 s) const {
        for (;; ++s) {
            u32* at = slots + (s & (u64)mask);
            u32 there = load(at);
            if (there == no_number) there = atomic_cas(at, no_number, (u32)k);
            if (there == no_number) break;
            if (!keys.same(places[k], keys, places[there])) continue;
            if (there > (u32)k) atomic_min(at, (u32)k);
            break;
        }
        return (i64)(s & (u64)mask);
    }
};

// Reads the least k of each key's equals, after ClaimKeys, and whether k is that least itself.
struct FirstKeys {
    static constexpr int lanes = 1;
    const u32* slots;
    const i64* slot;
    i64 n;
    u32* first;
    u32* is_first;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            first[k] = slots[slot[k]];
            is_first[k] = first[k] == k;
        }
    }
};
