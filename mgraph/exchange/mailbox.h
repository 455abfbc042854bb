// Messages between the ranks of a host, through memory that all of them map. Runs on the host only.
//
// Each rank has a segment. For every other rank it holds two slots: the sender writes messages into them alternately
// and counts them in `posted`; the owner reads them and counts them in `taken`. A waiting rank sleeps on the bell (a
// futex) of its own segment; others ring it after they have changed something there.
#pragma once
#include "kernels/waiting.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr int line_bytes = 64;  // a cache line: ranks do not write to the same line
constexpr int head_bytes = 64;  // step, code and total bytes of the part
constexpr int slots = 2;  // double buffer: one is read while the other is written
constexpr int inbox_bytes = 16384;  // parts up to this size arrive in preallocated memory

constexpr int bell_line = 1;  // bell: the number of changes; sleeping: 1 while the owner waits for the next
constexpr int stop_line = 2;  // 1 once the owner is closed
constexpr int lanes_line = 3;  // from here on, two lines per rank: posted and mapped; taken

constexpr u64 unknown = ~0ull;

enum Outcome : int { finished = 0, late = 1, lacking = 2, differing = 3, stopped = 4 };

template <class T> DEVICE T read_from(const T* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
template <class T> DEVICE void write_to(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

struct Segment {
    u8* base;
    i64 size, slot;  // number of ranks; bytes of a slot

    u32* bell() const { return (u32*)(base + bell_line * line_bytes); }
    u32* sleeping() const { return bell() + 1; }
    u32* stop() const { return (u32*)(base + stop_line * line_bytes); }
    u64* posted(i64 rank) const { return (u64*)(base + (lanes_line + 2 * rank) * line_bytes); }
    u64* mapped(i64 rank) const { return posted(rank) + 1; }
    u64* taken(i64 rank) const { return (u64*)(base + (lanes_line + 2 * rank + 1) * line_bytes); }
    u8* message(i64 rank, u64 number) const {
        return base + (lanes_line + 2 * size) * line_bytes + (rank * slots + number % slots) * slot;
    }
    void ring() const {
        __atomic_fetch_add(bell(), 1u, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(sleeping(), __ATOMIC_SEQ_CST)) syscall(SYS_futex, bell(), FUTEX_WAKE, 1, 0, 0, 0);
    }
};

// Sends a part to each rank that takes part, and receives one from each, until all is done or `patience` has passed.
// Another call with the same arrays resumes it.
struct Trade {
    static constexpr int lanes = 1;
    i64 step;
    i64 code;  // of the call; compared with the codes of the others
    i64 patience;  // nanoseconds
    const u64* out;  // for each rank, address and bytes of its part; `unknown`: the rank takes no part
    const u64* out_bytes;
    u64* arrivals;  // for each rank, the address for its part; 0 until there is memory for it
    u64* in_bytes;  // bytes of the part; `unknown` until the first message
    u64* sent;  // messages of this part sent and received
    u64* got;
    u64* all_sent;  // all messages ever sent and received
    u64* all_got;
    u8* inbox;  // `inbox_bytes` per rank
    i64* outcome;  // an Outcome; with `differing`, the rank and its code
    const u64* segments;  // addresses of all ranks' segments
    i64 rank;
    i64 size;
    i64 slot;

    Segment segment(i64 r) const { return {(u8*)segments[r], size, slot}; }
    u64 room() const { return slot - head_bytes; }
    u64 messages(u64 bytes) const { return bytes ? (bytes + room() - 1) / room() : 1; }

    bool send(i64 r) const {
        Segment to = segment(r);
        bool moved = false;
        for (; sent[r] < messages(out_bytes[r]) && all_sent[r] - read_from(to.taken(rank)) < slots; ++sent[r]) {
            u8* message = to.message(rank, all_sent[r]);
            u64 head[] = {(u64)step, (u64)code, out_bytes[r]};
            u64 first = sent[r] * room(), bytes = lesser(out_bytes[r] - first, room());
            __builtin_memcpy(message, head, sizeof head);
            if (bytes) __builtin_memcpy(message + head_bytes, (u8*)out[r] + first, bytes);
            write_to(to.posted(rank), ++all_sent[r]);
            to.ring();
            moved = true;
        }
        return moved;
    }
    bool complete(i64 r) const { return in_bytes[r] != unknown && got[r] == messages(in_bytes[r]); }

    bool receive(i64 r, int& end) const {
        Segment own = segment(rank);
        bool moved = false;
        while (!complete(r) && read_from(own.posted(r)) != all_got[r]) {
            const u8* message = own.message(r, all_got[r]);
            // The first message of a part has its head: check the call, and choose the memory.
            if (in_bytes[r] == unknown) {
                u64 head[3];
                __builtin_memcpy(head, message, sizeof head);
                if (head[0] != (u64)step || head[1] != (u64)code) {
                    outcome[1] = r, outcome[2] = (i64)head[1], end = differing;
                    return moved;
                }
                in_bytes[r] = head[2];
                if (head[2] <= inbox_bytes) arrivals[r] = (u64)(inbox + r * inbox_bytes);
            }
            if (!arrivals[r]) {
                end = end == finished ? lacking : end;
                return moved;
            }
            // Copy the data, and free the slot.
            u64 first = got[r] * room(), bytes = lesser(in_bytes[r] - first, room());
            if (bytes) __builtin_memcpy((u8*)arrivals[r] + first, message + head_bytes, bytes);
            ++got[r];
            write_to(own.taken(r), ++all_got[r]);
            segment(r).ring();
            moved = true;
        }
        return moved;
    }

    // Makes all progress that is possible now. Returns true if there was some.
    bool go_on(int& end) const {
        bool moved = false, whole = true;
        // Send to all, then receive from all.
        for (i64 r = 0; r < size; ++r)
            if (r != rank && out_bytes[r] != unknown) moved |= send(r);
        end = finished;
        for (i64 r = 0; r < size; ++r)
            if (r != rank && out_bytes[r] != unknown) {
                moved |= receive(r, end);
                whole &= complete(r) && sent[r] == messages(out_bytes[r]);
            }
        if (end == finished && !whole) end = late;
        return moved;
    }

    void sleep_until_rung(u32 bell, i64 longest) const {
        timespec most = {longest / 1000000000ll, longest % 1000000000ll};
        syscall(SYS_futex, segment(rank).bell(), FUTEX_WAIT, bell, &most, 0, 0);
    }

    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) {
            (void)i;
            outcome[0] = run();
        }
    }

    int run() const {
        Segment own = segment(rank);
        i64 began = now_nanoseconds(), moved_at = began;
        for (bool sleeps = false;;) {
            u32 bell = __atomic_load_n(own.bell(), __ATOMIC_SEQ_CST);
            int end;
            bool moved = go_on(end);
            if (end != late) {
                write_to(own.sleeping(), 0u);
                return end;
            }
            if (read_from(own.stop())) return stopped;
            i64 now = now_nanoseconds();
            if (now - began > patience) {
                write_to(own.sleeping(), 0u);
                return late;
            }
            if (moved) moved_at = now;
            if (now - moved_at < spin_nanoseconds) continue;
            if (now - moved_at < awake_nanoseconds()) {
                sched_yield();
            } else if (!sleeps) {  // loop once more: the bell may have rung before `sleeping` was set
                __atomic_store_n(own.sleeping(), 1u, __ATOMIC_SEQ_CST);
                sleeps = true;
            } else {
                sleep_until_rung(bell, patience - (now - began) + 1);
                write_to(own.sleeping(), 0u);
                sleeps = false;
            }
        }
    }
};

// Sends a number to every other rank, receives theirs, and finds the least of all.
struct Least {
    static constexpr int lanes = 1;
    i64 step;
    i64 value;
    i64 resumes;  // 1 after an outcome `late`
    i64 code;  // from here on as in Trade
    i64 patience;
    u64* out;
    u64* out_bytes;
    u64* arrivals;
    u64* in_bytes;
    u64* sent;
    u64* got;
    u64* all_sent;
    u64* all_got;
    u8* inbox;
    i64* outcome;  // an Outcome; if `finished`, the least number
    const u64* segments;
    i64 rank;
    i64 size;
    i64 slot;

    // The own place in the inbox has the number of this rank.
    i64* number(i64 r) const { return (i64*)(inbox + r * inbox_bytes); }

    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) {
            (void)i;
            if (!resumes) *number(rank) = value;
            for (i64 r = 0; r < size && !resumes; ++r) {
                out[r] = (u64)number(rank), out_bytes[r] = r == rank ? unknown : sizeof value;
                arrivals[r] = sent[r] = got[r] = 0, in_bytes[r] = unknown;
            }
            Trade trade{step,     code,    patience, out,     out_bytes, arrivals, in_bytes, sent, got,
                        all_sent, all_got, inbox,    outcome, segments,  rank,     size,     slot};
            outcome[0] = trade.run();
            if (outcome[0] == finished) outcome[1] = value;
            for (i64 r = 0; r < size && outcome[0] == finished; ++r) outcome[1] = lesser(outcome[1], *number(r));
        }
    }
};

// Tells every other rank, in its segment, that this rank has mapped it.
struct Greet {
    static constexpr int lanes = 1;
    const u64* segments;
    i64 rank;
    i64 size;
    i64 slot;
    DEVICE void operator()(Grid grid) const {
        for (i64 r : grid.items(size)) {
            Segment theirs{(u8*)segments[r], size, slot};
            write_to(theirs.mapped(rank), (u64)1);
            theirs.ring();
        }
    }
};

// Ends the owner's wait.
struct Stop {
    static constexpr int lanes = 1;
    u8* base;
    i64 size;
    i64 slot;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) {
            (void)i;
            Segment own{base, size, slot};
            write_to(own.stop(), 1u);
            own.ring();
        }
    }
};
