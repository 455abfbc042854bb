// Meetings of ranks on CPUs: phases run as ordinary kernels, and the thread that runs them meets the other ranks in
// memory that all have mapped. Where it waits for long, it sleeps until its bell is rung.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

DEVICE void or_everywhere(u32* p, u32 v) { atomic_or(p, v); }  // for words that another rank may write, too
DEVICE const u64* near_tables(const u64* tables) { return tables; }
template <class Program> DEVICE const Program& nearby(const Program& program) { return program; }
DEVICE i64* counts_of_phase(u64* control) { return (i64*)control + counts_at; }
DEVICE void store_four(u32* p, const u32 (&v)[4]) {
    for (int i = 0; i < 4; ++i) store(p + i, v[i]);
}

template <class Program> struct Phase {  // the work of one phase
    static constexpr int lanes = Program::lanes;
    const Program* program;
    const typename Program::State* state;
    Heard heard;
    DEVICE void operator()(Grid grid) const {
        Numbers mine = program->step(grid, *state, heard);
        for (int k = 0; k < number_count; ++k)
            if (mine.of[k]) atomic_add(program->world.number(k), mine.of[k]);
    }
};

inline void ring(u32* bell) {  // a counter of changes, and a word that is 1 if its rank sleeps
    __atomic_fetch_add(bell, 1u, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(bell + 1, __ATOMIC_SEQ_CST)) syscall(SYS_futex, bell, FUTEX_WAKE, 1, 0, 0, 0);
}
inline void say_word(u64* slot, int k, i64 value, i64 tag) {
    __atomic_store_n(slot + 2 * k, tagged((u32)value, tag), __ATOMIC_RELEASE);
    __atomic_store_n(slot + 2 * k + 1, tagged((u32)((u64)value >> 32), tag), __ATOMIC_RELEASE);
}

// The messages of a meeting between groups. The library of exchange/gateway.h sends and receives them for a gateway.
struct Carrying {
    const World* world;
    const i64* said;  // the words of the mates, which this rank has heard
    i64 tag, meetings;
    i64 next;  // the link in use
    i64 wait, moved, failed;  // nanoseconds to wait for it first; 1 if it sent or received; 1 if it failed
    bool done() const { return next == world->link_count; }
    void go_on(i64 nanoseconds) {
        wait = nanoseconds, moved = 0;
        Carrying* fields[] = {this};
        ((void (*)(const void*, i64, int))world->carry)(fields, 1, 1);
    }
};

class Gathering {
    const World& world;
    void say(bool alone) const {
        bool leaves = load((const u32*)world.host) || now_nanoseconds() - born > world.stay;
        i64 flags = leaves ? wants_to_leave : 0;
        for (i64 r = 0; r < world.size; ++r) {
            i64 count = load(world.counts() + r);
            flags += count << flag_bits;
            if (count > world.room) flags |= overflowed;
        }
        for (i64 r = 0; r < world.size; ++r) {
            if (alone ? r != world.rank : !world.reaches(r)) continue;
            u64* to = r == world.rank ? world.heard_of(r) : world.slot(r, meetings, world.rank);
            for (int k = 0; k < said_words; ++k) {
                i64 value = k == 0 ? load(world.counts() + r) : k <= number_count ? load(world.number(k - 1)) : flags;
                say_word(to, k, value, step);
            }
            if (r != world.rank) ring(world.words(r, bell_offset));
        }
        for (i64 i = 0; i < world.size + number_count; ++i) store(world.counts() + i, (i64)0);
    }
    bool take(i64 r) {  // reads the numbers of rank r; false if not all of them are there
        const u64* from = r == world.rank ? world.heard_of(r) : world.slot(world.rank, meetings, r);
        for (int k = 0; k < said_words; ++k) {
            u64 low = __atomic_load_n(from + 2 * k, __ATOMIC_ACQUIRE);
            u64 high = __atomic_load_n(from + 2 * k + 1, __ATOMIC_ACQUIRE);
            if (!has_tag(low, step) || !has_tag(high, step)) return false;
            world.heard_of(r)[2 * k] = low, world.heard_of(r)[2 * k + 1] = high;
            said[r * said_words + k] = (i64)((u64)(u32)high << 32 | (u32)low);
        }
        return true;
    }
    // Waits until all ranks are heard. Otherwise returns why not.
    End listen() {
        u32* own = world.words(world.rank, bell_offset);
        i64 began = now_nanoseconds(), moved = began;
        bool sleeps = false;
        Carrying carrying{&world, said, step, meetings, 0, 0, 0, 0};
        for (i64 r = 0, mate = carrying.done() ? world.size : 0, pause = 0;;) {
            u32 rung = __atomic_load_n(own, __ATOMIC_SEQ_CST);
            i64 before = r + mate;
            while (mate < world.size && (!world.reaches(mate) || take(mate))) ++mate;
            if (mate == world.size && !carrying.done()) carrying.go_on(pause);
            while (r < world.size && take(r)) ++r;
            if (r == world.size) break;
            if (carrying.failed) return broken;
            i64 now = now_nanoseconds();
            if (r + mate != before || carrying.moved) moved = now;
            if (now - began > world.patience) {
                store(own + 1, 0u);
                return waits;
            }
            i64 left = world.patience - (now - began) + 1;
            timespec limit{left / 1000000000, left % 1000000000};
            pause = 0;
            if (now - moved < spin_nanoseconds) continue;
            if (now - moved < awake_nanoseconds()) {
                sched_yield();
            } else if (mate == world.size && !carrying.done()) {
                pause = left;
            } else if (!sleeps) {  // once more through the loop: the bell may have been rung without waking
                __atomic_store_n(own + 1, 1u, __ATOMIC_SEQ_CST);
                sleeps = true;
            } else {
                syscall(SYS_futex, own, FUTEX_WAIT, rung, &limit, nullptr, 0);
                sleeps = false;
            }
        }
        if (world.size > 1) __atomic_store_n(own + 1, 0u, __ATOMIC_SEQ_CST);
        return ended;
    }

public:
    i64 said[Heard::totals + said_words] = {};  // nothing before the first meeting
    i64 step, meetings, born = now_nanoseconds();

    Gathering(const World& world, bool recall)
        : world(world), step((i64)load(world.control + step_at)), meetings((i64)load(world.control + meetings_at)) {
        for (i64 i = 0; recall && i < world.size * said_words; ++i) {
            const u64* pair = world.heard_of(0) + 2 * i;
            said[i] = (i64)((u64)(u32)pair[1] << 32 | (u32)pair[0]);
        }
        add_up();
    }
    Heard heard() const { return {said, world.rank, world.size, meetings}; }
    // True if a rank wants to leave. A meeting of the own rank alone does not tell that.
    bool leaves(bool alone) const { return (!alone || world.size == 1) && heard().any(wants_to_leave); }
    template <class Program> void pass(const Program& program, typename Program::State& state, bool alone) {
        meetings += !alone;
        if (state.phase == enters) program.begin(state);
        else program.next(state, heard());
    }
    void add_up() {
        for (int k = 0; k < said_words; ++k) Heard::add_up(said, world.size, k);
    }
    End meet(bool alone, bool resumed) {
        ++step;
        if (!resumed) say(alone);
        End end = ended;
        if (alone) take(world.rank);
        else end = listen();
        if (end) --step;
        else add_up();
        return end;
    }
    void keep(i64 end) const {
        store(world.control + step_at, (u64)step);
        store(world.control + meetings_at, (u64)meetings);
        store(world.control + waiting_at, (u64)(end == waits));
    }
};

template <class Program>
void run_phase(const Program& program, const typename Program::State& state, Heard heard, int threads) {
    launch(Phase<Program>{&program, &state, heard}, greater(program.items(state, heard), (i64)1), threads);
}

template <class Program> void drive(const Program& program, i64, int threads) {
    const World& world = program.world;
    Gathering all(world, program.resume);
    typename Program::State state{};
    bool waiting = false;
    if (program.resume == enters) {
        state.phase = enters;
    } else if (program.resume) {
        load_state(world, state);
        waiting = load(world.control + waiting_at) != 0;
        if (program.resume == carried) ++all.step, all.pass(program, state, false);
    } else {
        program.begin(state);
    }
    End end = ended;
    while (state.phase) {
        bool alone = state.phase != enters && program.alone(state);
        if (!waiting && state.phase != enters) run_phase(program, state, all.heard(), threads);
        if (!alone && world.apart) {
            world.tell_host(program, state, all.meetings, 0, 1);
            end = at_meeting;
            break;
        }
        if (!alone && !waiting && world.cargo_offset) world.tell_gateways(program, state);
        if ((end = all.meet(alone, waiting))) break;
        waiting = false;
        all.pass(program, state, alone);
        if (state.phase && all.leaves(alone)) {
            end = stayed;
            break;
        }
    }
    keep_state(world, state, end);
    all.keep(end);
}
