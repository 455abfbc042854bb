// Hornet, prepare: computes a batch's outcome without writing the structure. Writes are disjoint; counts are added up.
#pragma once
#include "structures/hornet/batch.cuh"

// One block per chunk, one lane per key: computes its place in its row, its outcome, and the counts. Another block sums
// up the arrays meanwhile.
struct Locate {
    static constexpr int lanes = 256, resident = 8;
    const u64* keys;
    const i8* op;
    i64 n;
    HornetView graph;
    i64 rows;
    i64 vertices;
    u32* place;
    u8* outcome;
    u32* before;
    u64* chunks;
    i64 shift;
    Arrays arrays;
    u32* ranks;
    i64* at;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 found[5] = {}, strange = 0, many = (n >> shift) + 1;  // the last one has the end of the keys
        for (i64 c : grid.items(block, many + 1)) {
            if (c == 0) ArraySums{arrays, ranks, at}(block);
            if (--c < 0) continue;
            i64 last = lesser((c + 1) << shift, n + 1);
            ChunkShifts moves;
            for (i64 first = c << shift; first < last; first += block.size()) {
                i64 k = first + block.rank();
                u8 is = k < n ? settle(k, strange) : (u8)overridden;
                for (int o = 0; k < n && o < 5; ++o) found[o] += is == o;  // without an index, which would need memory
                u32 upto = moves.before(block, is == inserted ? 1u << 16 : (u32)(is == deleted));
                if (k < last) before[k] = upto;
            }
            moves.close(block, chunks, (u64*)at + arrived, c, many, [](u64) {});
        }
        Tile<32> tile;
        for (int c = 0; c < 5; ++c) {
            i64 sum = tile.sum(c ? found[c] : strange);
            if (tile.rank() == 0 && sum) atomic_add(at + unknown + c, sum);
        }
    }
    DEVICE u8 settle(i64 k, i64& strange) const {
        bool known = (i64)(keys[k] >> 32) < rows && (i64)(u32)keys[k] < vertices;
        if (!known) place[k] = 0, ++strange;
        return outcome[k] = known ? look_up(k) : (u8)missing;
    }
    DEVICE u8 look_up(i64 k) const {
        u64 word = graph.rows[keys[k] >> 32];
        u32 id = (u32)keys[k];
        i64 first = graph.slot_of(word), last = first + (i64)(word >> 32);
        i64 slot = lower_bound(graph.slots, first, last, id);
        place[k] = (u32)(slot - first);
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;  // of equal keys the last acts
        bool there = slot < last && graph.slots[slot] == id;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

// Numbers from the counters of lists and of classes, reserved for all lanes of a block at once: atomics of all blocks
// on the same few words would contend.
struct Draws {
    static constexpr int first_word = few_rows, words = push0 + classes - few_rows;
    i64* at;
    u32* wanted;
    i64* from;  // the block's first number
    // returns its rank in the block
    DEVICE u32 want(int word) const { return atomic_add(wanted + (word - first_word), 1u); }
    DEVICE i64 number(int word, u32 rank) const { return from[word - first_word] + rank; }
    DEVICE void clear(Block block) const {
        for (int w = block.rank(); w < words; w += block.size()) wanted[w] = 0;
        block.sync();
    }
    DEVICE void draw(Block block) const {
        block.sync();
        for (int w = block.rank(); w < words; w += block.size())
            if (wanted[w]) from[w] = atomic_add(at + first_word + w, (i64)wanted[w]);
        block.sync();
    }
};

// A few keys per lane, blocks converged: lists changed rows, and counts the blocks that classes lose and gain. The last
// block plans the allocation.
struct Needs {
    static constexpr int lanes = 1, resident = 5;
    const u64* keys;
    i64 n;
    HornetView graph;
    i64 rows;
    const u32* before;
    const u64* chunks;
    i64 shift;
    u32* end;
    u64* held;
    u32* drawn;
    Lists lists;
    Arrays arrays;
    i64* at;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        constexpr int each = in_flight > 1 ? in_flight : 4;
        SHARED(u32, wanted, Draws::words);
        SHARED(i64, from, Draws::words);
        SHARED(bool, is_last, 1);
        Block block;
        Draws draws{at, wanted, from};
        Batch batch = {keys, nullptr, nullptr, before, chunks, shift, end, held, drawn, n};
        i64 step = (i64)block.size() * each, steps = (n + step - 1) / step, own_steps = 0;
        for (i64 b : grid.items(block, steps)) {
            int list[each], pop[each];
            u32 listed[each], popped[each];
            draws.clear(block);
            for (int j = 0; j < each; ++j) {
                look(batch, b * step + j * block.size() + block.rank(), draws, list[j], pop[j]);
                if (list[j]) listed[j] = draws.want(list[j]);
                if (pop[j]) popped[j] = draws.want(pop[j]);
            }
            draws.draw(block);
            for (int j = 0; j < each; ++j) {
                i64 k = b * step + j * block.size() + block.rank();
                if (list[j]) put(k, list[j], draws.number(list[j], listed[j]));
                if (pop[j]) drawn[k] = (u32)draws.number(pop[j], popped[j]);
            }
            block.sync();
            ++own_steps;
        }
        if (!own_steps) return;
        if (block.rank() == 0) *is_last = (i64)arrive((u64*)at + looked, (u64)own_steps) + own_steps == steps;
        block.sync();
        if (*is_last) plan_blocks(block, arrays, at, mailbox);
    }
    // Returns the counter of the list of key k's row, and that of the class of its new block; 0 for none.
    DEVICE void look(const Batch& batch, i64 k, const Draws& draws, int& list, int& pop) const {
        i64 last = k < n && batch.leads(k) ? end_of(batch, k) : k;
        list = pop = 0;
        if (last == k) return;
        u64 word = graph.rows[batch.row(k)];
        Change change(batch, k, last, word, graph.unit);
        held[k] = word;
        bool moves = change.from != change.to;
        if (moves && change.to >= 0) pop = pop0 + change.to;
        if (moves && change.from >= 0) draws.want(push0 + change.from);
        i64 size = change.had + change.inserts;
        list = size > huge_edges ? huge_rows : size > some_edges ? many_rows : size > few_edges ? some_rows : few_rows;
        if (list != huge_rows) return;
        atomic_add(at + pieces, pieces_of(change.had) + pieces_of(last - k));
        if (!moves) atomic_add(at + saved, change.had);
    }
    DEVICE void put(i64 k, int list, i64 to) const {
        u32* its = list == few_rows ? lists.few : list == some_rows ? lists.some : lists.many;
        its[list == huge_rows ? lists.capacity - 1 - to : to] = (u32)k;
    }
    DEVICE i64 end_of(const Batch& batch, i64 k) const {  // returns `k` itself for an unchanged row
        i64 row = batch.row(k);
        if (row >= rows) return end[k] = 0, k;
        i64 last = lower_bound_near(keys, n, k + 1, first_key_of(row + 1));
        bool stays = batch.moves(last) == batch.moves(k);
        end[k] = stays ? 0 : (u32)last;
        return stays ? k : last;
    }
};
