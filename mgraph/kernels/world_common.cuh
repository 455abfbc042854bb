// The ranks of a graph, as a program sees them. A program is a struct of 8-byte fields,
// one of them `World world`, with
//   struct State                      8-byte words, at most state_words; the first is `i64 phase`
//   void begin(State&)                the state before the first phase
//   Numbers step(grid, state, heard)  the work of one phase: it waits for nothing, and returns what this lane counted
//   i64 items(state, heard)           how much work that is; a CPU wakes threads by it
//   bool alone(state)                 true if only this rank's blocks meet after the phase. All ranks have the same
//                                     phases, these too, since the count of phases is the tag of a meeting
//   Shared shares(state)              the values that the phase writes to the regions of all ranks; an i64 is the
//                                     offset of a bitmap
//   void next(state, heard)           the next phase, from the numbers of all ranks, so equal on all; 0 ends
// and `i64 launch, resume`, which its driver sets. The driver `drive` runs the phases in one kernel (on a GPU) or one
// call (on a CPU). After each phase the ranks meet. If another rank is late, the driver keeps the state in memory and
// ends; launched again with `goes_on`, it continues there. If some ranks do not map each other's memory, gateways with
// `links` send to each other at a meeting of all ranks. Without links a launch ends there. The host then carries numbers,
// messages and shares, and launches again with `carried`.
#pragma once

constexpr int number_count = 5;  // numbers that a rank says at a meeting, besides the messages sent
constexpr int said_words = number_count + 2;  // of a rank: messages to the reader, the numbers; flags and all messages
constexpr int slot_words = 2 * said_words;  // each half of a number carries the meeting's tag
constexpr int most_ranks = 64;
constexpr int state_words = 24;
constexpr int most_table_words = 6 * most_ranks + 1;
constexpr i64 bell_offset = 64, slots_offset = 256;  // in a region, which begins with a token; a CPU has a bell
enum Flag : i64 { wants_to_leave = 1, overflowed = 2 };
constexpr int flag_bits = 2;  // of the last word, above which are the messages sent to all
// How a launch ended. After `stay`, or if the host of rank 0 says so, the ranks leave together, at a meeting of all.
enum End : i64 { ended = 0, waits = 1, stayed = 2, at_meeting = 3, broken = 4 };  // broken: a link, which says why
// enters: all ranks meet first, in a phase of this number, on CPUs; carried: `control` has the words of all ranks
enum Resume : i64 { enters = -1, begins = 0, goes_on = 1, carried = 2 };

// The words of `control`, in the memory of one rank.
constexpr int arrived_at = 0, intends_at = 16, stays_at = 17, leaves_at = 18;
constexpr int step_at = 32, meetings_at = 33, waiting_at = 34;
constexpr int state_at = 48, counts_at = state_at + state_words;
// A set of counts: messages to each rank since the last meeting, the numbers, and flags. A GPU has one for each of three
// meetings in turn: at one it reads the first, adds to the next after it, and clears the one before.
constexpr int count_words = most_ranks + 8, count_sets = 3;
constexpr int heard_at = counts_at + count_sets * count_words;
// Words of the host: how a launch ended, and the state; at a meeting, the meetings before, the counts, and `Shared`.
constexpr int report_at = 8, meeting_at = report_at + 1 + state_words, share_words = 7;
constexpr int report_words = meeting_at + 1 + most_ranks + number_count + share_words;
static_assert(number_count < 8 && heard_at % 2 == 0);

// How a GPU waits.
constexpr i64 clocks_per_nanosecond = 2;  // at most: the time is measured by the SM's own clock
constexpr u32 clock_polls = 1 << 8;  // polls between reads of the clock
constexpr int at_once = 2;  // words that a lane polls at once: those of 8 ranks

// Values that a phase writes to the regions of all ranks, by their offsets: the words of a bitmap with the own
// vertices; or the bits and array elements of the own vertices in a list; or the own part of an array.
struct Shared {
    i64 bits;  // offset of a bitmap, or -1
    i64 vertices = -1, count = 0;  // offset and length of the list, u32, or -1
    i64 wide = -1, narrow = -1;  // offsets of arrays with 8 and 4 bytes per vertex of the graph, or -1
    i64 array = -1, width = 0;  // offset of an array with `width` bytes per vertex of the graph, or -1
    DEVICE Shared(i64 bits = -1) : bits(bits) {}
};

struct Numbers {
    i64 of[number_count] = {};
};

// The words of each rank at the last meeting; behind those of `most_ranks`, what they add up to. So a sum is one load.
struct Heard {
    const i64* said;
    i64 rank, size, meetings;
    static constexpr int totals = most_ranks * said_words;
    // Adds up a word of all ranks. Of the last one the flags are joined. Sums of words that are no counts may wrap.
    static APART void add_up(i64* said, i64 size, int word) {
        u64 sum = 0, flags = 0, all = word == said_words - 1 ? ~(u64)0 << flag_bits : ~(u64)0;
#pragma unroll 1
        for (i64 r = 0; r < size; ++r) {
            u64 its = (u64)said[r * said_words + word];
            sum += its & all, flags |= its & ~all;
        }
        said[totals + word] = (i64)(sum | flags);
    }
    DEVICE i64 messages(i64 from) const { return said[from * said_words]; }
    DEVICE i64 number(i64 from, int k) const { return said[from * said_words + 1 + k]; }
    DEVICE i64 own(int k) const { return number(rank, k); }
    DEVICE i64 messages() const { return said[totals]; }  // received from all
    DEVICE i64 total(int k) const { return said[totals + 1 + k]; }
    DEVICE i64 least(int k) const {  // the minimum over all ranks
        i64 least = said[1 + k];
        for (i64 r = 1; r < size; ++r) least = lesser(least, said[r * said_words + 1 + k]);
        return least;
    }
    DEVICE bool any(i64 flag) const { return said[totals + 1 + number_count] & flag; }
    DEVICE i64 sent() const { return said[totals + 1 + number_count] >> flag_bits; }  // messages of all ranks
    // messages sent now are read after the next meeting of the ranks
    DEVICE i64 sends() const { return meetings & 1; }
    DEVICE i64 reads() const { return (meetings & 1) ^ 1; }
};

template <class State> DEVICE void keep_state(const struct World& world, const State& state, i64 end);
DEVICE const u64* near_tables(const u64* tables);  // the same words, in shared memory on a GPU
DEVICE i64* counts_of_phase(u64* control);  // the set to which the phase adds
// The same program, as a function of its own (APART) should read it.
template <class Program> DEVICE const Program& nearby(const Program& program);

struct World {
    i64 rank;
    i64 size;
    const u64* tables;  // of starts, regions, where to write messages, and inboxes; a GPU's blocks have copies
    u64* control;
    i64 host;  // address of words of the host: 1 if rank 0 wants to leave; from `report_at` on, how a launch ended
    i64 patience;  // nanoseconds that a launch waits for another rank, and a GPU until it looks at the host's word
    i64 stay;  // nanoseconds after which a launch leaves at a meeting
    i64 room;  // messages that an inbox holds
    i64 message_bytes;
    i64 apart;  // 1 if a launch ends at each meeting of all ranks
    i64 cargo_offset;  // where a rank tells its gateways, in its region, what they carry; 0 if there are none
    i64 carry;  // address of the host's function that carries a gateway's messages; those of its links, and their number
    i64 links;
    i64 link_count;
    DEVICE i64 table_words() const { return 6 * size + 1; }
    DEVICE i64* counts() const { return counts_of_phase(control); }
    // The first vertex of a rank's range, or one past the last of all.
    DEVICE i64 start(i64 r) const { return (i64)near_tables(tables)[r]; }
    // The address of a rank's region in this process; 0: it cannot be reached.
    DEVICE u64 region(i64 r) const { return near_tables(tables)[size + 1 + r]; }
    // Where to write messages to a rank, and the inbox of messages from it, for two parities.
    DEVICE u64 out(i64 parity, i64 to) const { return near_tables(tables)[2 * size + 1 + parity * size + to]; }
    DEVICE u64 in(i64 parity, i64 from) const { return near_tables(tables)[4 * size + 1 + parity * size + from]; }
    DEVICE u32* words(i64 r, i64 offset) const { return (u32*)(region(r) + offset); }
    DEVICE bool reaches(i64 r) const { return region(r) != 0; }
    DEVICE i64 lo() const { return start(rank); }
    DEVICE i64 hi() const { return start(rank + 1); }
    DEVICE i64 rows() const { return hi() - lo(); }
    DEVICE i64 vertices() const { return start(size); }
    DEVICE i64 owner(i64 v) const {
        i64 first = 0;
        for (i64 n = size; n > 1;) {
            i64 half = n / 2;
            if (start(first + half) <= v) first += half, n -= half;
            else n = half;
        }
        return first;
    }
    // Messages have 4 or 8 bytes, the same for all of a program. If the inbox has no room, a message is counted but not
    // written, and the meeting's flags say `overflowed`.
    template <class T> DEVICE void send(const Heard& heard, i64 to, T message) const {
        i64 place = take_place(counts() + to);
        if (place < room) put(heard, to, place, message);
    }
    template <class T> DEVICE void put(const Heard& heard, i64 to, i64 place, T message) const {
        store((T*)out(heard.sends(), to) + place, message);
    }
    template <class T = u32> DEVICE T message(const Heard& heard, i64 from, i64 i) const {
        return load((const T*)in(heard.reads(), from) + i);
    }
    DEVICE i64* number(int k) const { return counts() + size + k; }
    // Writes the words that the host carries at a meeting of all ranks, and clears the counts. Called by `n` lanes.
    template <class Program, class State>
    DEVICE void tell_host(const Program& program, const State& state, i64 meetings, int lane, int n) const {
        i64 *told = (i64*)host + meeting_at, *counts = this->counts();
        for (int i = lane; i < size + number_count; i += n)
            store(told + 1 + i, load(counts + i)), store(counts + i, (i64)0);
        if (lane) return;
        store(counts + size + number_count, (i64)0);
        store(told, meetings);
        store_shared(told + 1 + size + number_count, program.shares(state));
    }
    DEVICE void store_shared(i64* to, const Shared& shared) const {
        i64 words[share_words];
        copy_bytes(words, &shared, sizeof shared);
        for (int i = 0; i < share_words; ++i) store(to + i, words[i]);
    }
    // Writes the counts of messages and `Shared` for the gateways of this rank's group.
    template <class Program, class State> DEVICE void tell_gateways(const Program& program, const State& state) const {
        i64* told = (i64*)words(rank, cargo_offset);
        for (i64 r = 0; r < size; ++r) store(told + r, load(counts() + r));
        store_shared(told + size, program.shares(state));
    }
    DEVICE u64* slot(i64 of, i64 meetings, i64 from) const {
        return (u64*)(region(of) + slots_offset) + ((meetings & 1) * size + from) * slot_words;
    }
    DEVICE u64* heard_of(i64 r) const { return control + heard_at + r * slot_words; }
};

DEVICE u64 tagged(u32 half, i64 tag) { return (u64)(u32)tag << 32 | half; }
DEVICE bool has_tag(u64 word, i64 tag) { return (u32)(word >> 32) == (u32)tag; }

template <class State> DEVICE void load_state(const World& world, State& state) {
    static_assert(sizeof(State) % 8 == 0 && sizeof(State) <= 8 * state_words);
    i64 words[sizeof(State) / 8];
    for (int i = 0; i < (int)(sizeof(State) / 8); ++i) words[i] = (i64)load(world.control + state_at + i);
    copy_bytes(&state, words, sizeof state);
}
template <class State> DEVICE void keep_state(const World& world, const State& state, i64 end) {
    i64 words[sizeof(State) / 8];
    copy_bytes(words, &state, sizeof state);
    i64* report = (i64*)world.host + report_at;
    for (int i = 0; i < (int)(sizeof(State) / 8); ++i) {
        store(world.control + state_at + i, (u64)words[i]);
        store(report + 1 + i, words[i]);
    }
    store(report, end);
}
