// Messages between the gateways of groups, at a meeting of all ranks. A gateway that has heard its mates sends what they
// say, and their cargo, to the gateway of another group. What that group says it writes into the slots of its mates, as
// if those ranks had done it.
//
// A message has a head, the words of each rank of the group, and the cargo: the values that each of these ranks shares
// with all, then its messages to each rank of the other group. Each of these pieces is padded to 16 bytes. The words tell
// their sizes. Runs on the host only.
#pragma once
#include "kernels/world.cuh"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>

// Python writes the first fields of a `Link`, and reads link_theirs.
constexpr int link_out = 0, link_in = 1, link_transfer = 2, link_code = 3, link_theirs = 4, link_count = 5,
              link_ranks = 6;
constexpr int link_closed = -1, link_unfit = -2;  // link_theirs of a connection that has ended, and of a wrong message
constexpr i64 stage_bytes = 1 << 17;  // more than the words of all ranks
constexpr int most_carried = most_ranks + share_words + said_words - 1;
constexpr i64 link_words = link_ranks + most_ranks + 13 + most_ranks * most_carried + stage_bytes / 4;

struct Head {
    i64 meeting, code, bytes;  // of what follows
};

// The connection to another group, and the state of a meeting's message: a launch may end before it is complete.
struct Link {
    i64 out, in;  // sockets, which do not block
    i64 (*transfer)(i64 sends, u8* data, i64 bytes);  // of sockets that encrypt: bytes, 0 at the end, -1 if not ready
    i64 code;  // of a meeting
    i64 theirs;  // of a failed link: the code of the call that the other side is in, link_closed or link_unfit
    i64 count, ranks[most_ranks];  // of the other group
    i64 meeting, done;  // the meeting's tag; 1 once its messages were sent and received
    i64 filled, sent, loaded, cargo;  // bytes in `outgoing`, and those sent; bytes of cargo that were loaded, and all
    i64 heard, staged, unloaded, expected;  // bytes of head and words; those in `incoming`; of cargo, and all
    Head head;
    i64 words[most_ranks * most_carried];  // of each rank of the other group
    u8 outgoing[stage_bytes], incoming[stage_bytes];
};
static_assert(sizeof(Link) == 8 * link_words && offsetof(Link, ranks) == 8 * link_ranks);
static_assert(offsetof(Link, words) == offsetof(Link, head) + sizeof(Head));
static_assert(sizeof(Head) + 8 * most_ranks * most_carried <= stage_bytes && sizeof(Shared) == 8 * share_words);

class Gateway {
    Carrying& carrying;
    const World& world = *carrying.world;
    const i64* const said = carrying.said;
    const i64 tag = carrying.tag, meetings = carrying.meetings;
    i64 mate_count = 0, mates[most_ranks];
    Link* link = (Link*)world.links + carrying.next;

    u8* place(i64 r, i64 offset) const { return (u8*)world.region(r) + offset; }
    i64 offset(const void* own) const { return (u8*)own - place(world.rank, 0); }
    // What a rank tells its gateways: its messages to each rank, and `Shared`. In a message its numbers and flags follow.
    i64 told_words() const { return world.size + share_words; }
    i64 rank_words() const { return told_words() + said_words - 1; }
    const i64* mates_words(i64 i) const { return (const i64*)place(mates[i], world.cargo_offset); }
    const i64* their_words(i64 i) const { return link->words + i * rank_words(); }

    // ---- the pieces of a cargo ---------------------------------------------------------------------------------------

    struct Piece {
        i64 sender, receiver;  // -1: what the sender shares with all
        Shared shared;
        i64 bytes;
    };
    struct Part {
        i64 skipped, bytes;  // of its piece
        u8* data;
    };
    i64 share_bytes(i64 r, const Shared& shared) const {
        i64 first = world.start(r), end = world.start(r + 1);
        if (shared.vertices >= 0) return 16 * shared.count;
        if (shared.bits >= 0) return 4 * ((end + 31) / 32 - first / 32);
        return shared.array >= 0 ? shared.width * (end - first) : 0;
    }
    // The values that rank r shares, but for a list, in the region of a rank.
    u8* shared_place(i64 r, const Shared& shared, i64 of) const {
        i64 first = world.start(r);
        return place(of, shared.bits >= 0 ? shared.bits + first / 32 * 4 : shared.array + shared.width * first);
    }
    // Calls f(piece, part) for the parts of all pieces that are in n bytes at `data`, which begin at byte `from` of a
    // cargo. Returns the bytes of the whole cargo.
    template <class F> i64 each_part(bool own, i64 from, u8* data, i64 n, F f) const {
        i64 at = 0;
        auto pass = [&](const Piece& piece) {
            i64 first = greater(at, from), end = lesser(at + piece.bytes, from + n);
            if (first < end) f(piece, Part{first - at, end - first, data + (first - from)});
            at += (piece.bytes + 15) & ~15ll;
        };
        i64 senders = own ? mate_count : link->count, receivers = own ? link->count : mate_count;
        for (i64 shares = 1; shares >= 0; --shares)
            for (i64 i = 0; i < senders; ++i) {
                Piece piece{own ? mates[i] : link->ranks[i], -1, {}, 0};
                const i64* told = own ? mates_words(i) : their_words(i);
                copy_bytes(&piece.shared, told + world.size, sizeof(Shared));
                if (shares) {
                    piece.bytes = share_bytes(piece.sender, piece.shared);
                    pass(piece);
                    continue;
                }
                for (i64 k = 0; k < receivers; ++k) {
                    piece.receiver = own ? link->ranks[k] : mates[k];
                    piece.bytes = lesser(told[piece.receiver], world.room) * world.message_bytes;
                    pass(piece);
                }
            }
        return at;
    }

    // ---- sending -----------------------------------------------------------------------------------------------------

    void begin() {
        if (link->meeting == tag) return;
        link->meeting = tag, link->done = link->loaded = link->sent = 0;
        link->heard = link->staged = link->unloaded = 0;
        link->cargo = each_part(true, 0, nullptr, 0, [](const Piece&, const Part&) {});
        i64 bytes = 8 * mate_count * rank_words();
        Head head{tag, link->code, bytes + link->cargo};
        copy_bytes(link->outgoing, &head, sizeof head);
        i64* words = (i64*)(link->outgoing + sizeof head);
        for (i64 i = 0; i < mate_count; ++i, words += rank_words()) {
            copy_bytes(words, mates_words(i), 8 * told_words());
            copy_bytes(words + told_words(), said + mates[i] * said_words + 1, 8 * (said_words - 1));
        }
        link->filled = sizeof head + bytes;
        load();
    }
    // Adds as much cargo as fits to `outgoing`.
    void load() {
        i64 n = lesser((stage_bytes - link->filled) & ~15ll, link->cargo - link->loaded);
        each_part(true, link->loaded, link->outgoing + link->filled, n, [&](const Piece& piece, const Part& part) {
            if (piece.receiver >= 0) {
                u8* outbox = place(piece.sender, offset((u8*)world.out(0, piece.receiver)));
                copy_bytes(part.data, outbox + part.skipped, part.bytes);
            } else if (piece.shared.vertices >= 0) {
                pack(piece, part);
            } else {  // mates write bitmaps and arrays to the own region, too
                copy_bytes(part.data, shared_place(piece.sender, piece.shared, world.rank) + part.skipped, part.bytes);
            }
        });
        link->filled += n, link->loaded += n;
    }
    // A record of a listed vertex is narrow << 32 | vertex, then wide.
    void pack(const Piece& piece, const Part& part) const {
        const u32* vertices = (const u32*)place(piece.sender, piece.shared.vertices) + part.skipped / 16;
        const u64* wide = (const u64*)place(world.rank, piece.shared.wide);
        const u32* narrow = (const u32*)place(world.rank, piece.shared.narrow);
        u64* records = (u64*)part.data;
        for (i64 i = 0; i < part.bytes / 16; ++i) {
            u32 v = vertices[i];
            records[2 * i] = (u64)(piece.shared.narrow < 0 ? 0 : narrow[v]) << 32 | v;
            records[2 * i + 1] = piece.shared.wide < 0 ? 0 : wide[v];
        }
    }
    bool send_all() {
        for (;;) {
            if (link->sent == link->filled) {
                if (link->loaded == link->cargo) return true;
                link->sent = link->filled = 0;
                load();
            }
            if (!move(true, link->outgoing, link->sent, link->filled)) return false;
        }
    }

    // ---- receiving ---------------------------------------------------------------------------------------------------

    bool receive_all() {
        i64 first = sizeof(Head) + 8 * link->count * rank_words();
        while (link->heard < first) {
            if (!move(false, (u8*)&link->head, link->heard, first) || !fits(first)) return false;
        }
        while (link->unloaded < link->expected) {
            if (!move(false, link->incoming, link->staged, lesser(stage_bytes, link->expected - link->unloaded)))
                return false;
            if (!unload()) return false;
        }
        return true;
    }
    // Returns false if the other side is in another call, or its words do not fit.
    bool fits(i64 first) {
        const Head& head = link->head;
        if (link->heard < (i64)sizeof head) return true;
        if (head.code != link->code && head.code > 0) return fail(head.code);
        if (head.meeting != tag || head.code != link->code) return fail(link_unfit);
        if (link->heard < first) return true;
        for (i64 i = 0; i < link->count; ++i)
            if (!words_fit(link->ranks[i], their_words(i))) return fail(link_unfit);
        link->expected = each_part(false, 0, nullptr, 0, [](const Piece&, const Part&) {});
        return head.bytes == first - (i64)sizeof head + link->expected || fail(link_unfit);
    }
    // All ranks share the same arrays in a phase. So nothing is written elsewhere, whatever the other side sends.
    bool words_fit(i64 r, const i64* told) const {
        Shared own, theirs;
        copy_bytes(&own, (const i64*)place(world.rank, world.cargo_offset) + world.size, sizeof own);
        copy_bytes(&theirs, told + world.size, sizeof theirs);
        bool over = told[told_words() + number_count] & overflowed;
        for (i64 m = 0; m < mate_count; ++m)
            if (told[mates[m]] < 0 || (told[mates[m]] > world.room && !over)) return false;
        return theirs.bits == own.bits && theirs.wide == own.wide && theirs.narrow == own.narrow &&
               theirs.array == own.array && theirs.width == own.width && (theirs.vertices < 0) == (own.vertices < 0) &&
               theirs.count >= 0 && theirs.count <= world.start(r + 1) - world.start(r);
    }
    bool fail(i64 why) {
        link->theirs = why, carrying.failed = 1;
        return false;
    }
    // Writes the whole pieces, or whole records, that are in `incoming` to the regions of the mates. Returns false if a
    // vertex is not the sender's.
    bool unload() {
        i64 n = link->staged;
        if (link->unloaded + n < link->expected) n &= ~15ll;
        each_part(false, link->unloaded, link->incoming, n, [&](const Piece& piece, const Part& part) {
            if (piece.receiver >= 0) {
                i64 inbox = offset((u8*)world.in(meetings & 1, piece.sender));
                copy_bytes(place(piece.receiver, inbox) + part.skipped, part.data, part.bytes);
                return;
            }
            if (piece.shared.vertices >= 0 && !lists_own(piece, part)) fail(link_unfit);
            for (i64 m = 0; m < mate_count && !carrying.failed; ++m) take(piece, part, mates[m]);
        });
        link->unloaded += n, link->staged -= n;
        if (n) copy_bytes(link->incoming, link->incoming + n, link->staged);  // less than a record
        return !carrying.failed;
    }
    bool lists_own(const Piece& piece, const Part& part) const {
        const u64* records = (const u64*)part.data;
        i64 first = world.start(piece.sender), end = world.start(piece.sender + 1);
        for (i64 i = 0; i < part.bytes / 16; ++i)
            if ((u32)records[2 * i] < first || (u32)records[2 * i] >= end) return false;
        return true;
    }
    void take(const Piece& piece, const Part& part, i64 mate) const {
        const Shared& shared = piece.shared;
        if (shared.vertices >= 0) {
            const u64* records = (const u64*)part.data;
            u32 *bits = (u32*)place(mate, shared.bits), *narrow = (u32*)place(mate, shared.narrow);
            u64* wide = (u64*)place(mate, shared.wide);
            for (i64 i = 0; i < part.bytes / 16; ++i) {
                u32 v = (u32)records[2 * i];
                if (shared.bits >= 0) or_everywhere(bits + v / 32, 1u << v % 32);
                if (shared.wide >= 0) wide[v] = records[2 * i + 1];
                if (shared.narrow >= 0) narrow[v] = (u32)(records[2 * i] >> 32);
            }
        } else if (shared.bits >= 0) {  // other gateways may write to the same words
            u32* bits = (u32*)(shared_place(piece.sender, shared, mate) + part.skipped);
            for (i64 i = 0; i < part.bytes / 4; ++i)
                if (u32 taken = ((const u32*)part.data)[i]) or_everywhere(bits + i, taken);
        } else {
            copy_bytes(shared_place(piece.sender, shared, mate) + part.skipped, part.data, part.bytes);
        }
    }
    // Says to the mates what the ranks of the other group have said.
    void pass_on() {
        for (i64 m = 0; m < mate_count; ++m) {
            for (i64 i = 0; i < link->count; ++i) {
                const i64* words = their_words(i);
                u64* slot = world.slot(mates[m], meetings, link->ranks[i]);
                for (int k = 0; k < said_words; ++k)
                    say_word(slot, k, k ? words[told_words() + k - 1] : words[mates[m]], tag);
            }
            if (mates[m] != world.rank) ring(world.words(mates[m], bell_offset));
        }
    }
    // Sends or receives bytes of `data` from `at` up to `end`, and adds their number to `at`. Returns false if the socket
    // is not ready, or has failed.
    bool move(bool sends, u8* data, i64& at, i64 end) {
        i64 n;
        if (link->transfer) n = link->transfer(sends, data + at, end - at);
        else if (sends) n = ::send((int)link->out, data + at, end - at, MSG_NOSIGNAL);
        else n = ::recv((int)link->in, data + at, end - at, 0);
        bool later = n < 0 && (link->transfer || errno == EAGAIN || errno == EINTR);
        if (n > 0) at += n, carrying.moved = 1;
        else if (!later) fail(link_closed);
        return n > 0;
    }

public:
    explicit Gateway(Carrying& carrying) : carrying(carrying) {
        for (i64 r = 0; r < world.size; ++r)
            if (world.reaches(r)) mates[mate_count++] = r;
    }
    // Sends and receives what is possible now, by one link after another.
    void go_on() {
        for (; !carrying.done(); ++carrying.next, ++link) {
            begin();
            if (link->done) continue;
            bool sent = send_all();
            if (carrying.failed || !receive_all() || !sent) return;
            link->done = 1;
            pass_on();
        }
    }
    // Waits until the link in use can go on.
    void wait() const {
        bool sends = link->sent < link->filled || link->loaded < link->cargo;
        pollfd sockets[] = {{(int)link->in, POLLIN, 0}, {(int)link->out, POLLOUT, 0}};
        timespec limit{carrying.wait / 1000000000, carrying.wait % 1000000000};
        ppoll(sockets, sends ? 2 : 1, &limit, nullptr);
    }
};

struct Carry {
    static constexpr int lanes = 1;
    i64 carrying;  // address of a `Carrying`
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) {
            (void)i;
            Carrying& own = *(Carrying*)carrying;
            Gateway gateway(own);
            if (own.wait) gateway.wait();
            gateway.go_on();
        }
    }
};
