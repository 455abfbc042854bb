// Meetings of ranks on GPUs: each rank has one resident kernel, whose blocks are all on the GPU at once. At a meeting of
// one rank's blocks, each waits for the others and reads what they counted. At one of several ranks, the last block to
// arrive is the leader: it writes its rank's numbers to the others. All blocks poll the numbers of the others, in memory
// of their own GPU. The leader decides whether to leave.
#pragma once

// Each block's copy: after a meeting, a load from global memory goes past L1.
DEVICE u64* shared_tables() {
    SHARED(u64, words, most_table_words);
    return words;
}
DEVICE const u64* near_tables(const u64*) { return shared_tables(); }

// Each block's copy of a program's fields. A function of its own does not know that a reference is to the kernel's
// parameters: it would load the fields from global memory, after each fence past L1.
template <class Program> DEVICE Program& shared_program() {
    __shared__ Program program;
    return program;
}
template <class Program> DEVICE const Program& nearby(const Program&) { return shared_program<Program>(); }

// Each block's copy: the set of counts to which the phase adds.
DEVICE i64*& shared_counts() {
    SHARED(i64*, counts, 1);
    return counts[0];
}
DEVICE i64* counts_of_phase(u64*) {
    i64* counts = shared_counts();
    __builtin_assume(__isGlobal(counts));
    return counts;
}

// For words that another rank may write, too.
DEVICE void or_everywhere(u32* p, u32 v) {
    asm volatile("red.relaxed.sys.global.or.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void store_four(u32* p, const u32 (&v)[4]) { *(uint4*)p = make_uint4(v[0], v[1], v[2], v[3]); }
DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
DEVICE void fence_in_order() { asm volatile("fence.sc.sys;" ::: "memory"); }
// Arrives at a barrier of all blocks: returns true to the last one, which sees what the others wrote.
DEVICE bool arrive_last(u64* arrived) {
    u64 before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(arrived), "l"(arrival())
                 : "memory");
    return ((before + arrival()) & (((u64)1 << 24) - 1)) == 0;
}

// One number of a slot: two tagged words, which need not be loaded at once.
DEVICE void load_pair(const u64* p, u64& a, u64& b) {
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
}
DEVICE void store_pair(u64* p, u64 a, u64 b) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
}

template <class Program> struct OVERLAY Gathering {  // the meetings of one launch; one for each block, in shared memory
    i64 said[Heard::totals + said_words];
    typename Program::State state;
    i64 step, meetings, born, looked;
    u32 sums[number_count][2];  // the halves of what the block's threads counted
    u64 barriers;
    int told, left;

    DEVICE Heard heard(const World& world) const { return {said, world.rank, world.size, meetings}; }

    // Calls f(i, n) for each count of this rank, by the lanes of a warp, once all blocks have arrived. Returns the flags
    // that it says, with the messages to all.
    template <class F> DEVICE i64 visit_counts(const World& world, F f) const {
        i64 lane = threadIdx.x & 31, sent = 0, flags_at = world.size + number_count;
        bool over = false, leaves = false;
#pragma unroll
        for (int j = 0; j < count_words; j += 32) {
            i64 i = j + lane, n = i <= flags_at ? load(world.counts() + i) : 0;
            if (i < world.size) sent += n, over |= n > world.room;
            if (i == flags_at) leaves = n;
            f(i, n);
        }
        for (int lanes = 16; lanes; lanes /= 2) sent += __shfl_xor_sync(~0u, sent, lanes);
        i64 flags = __any_sync(~0u, over) ? overflowed : 0;
        if (__any_sync(~0u, leaves)) flags |= wants_to_leave;
        return sent << flag_bits | flags;
    }

    // Writes this rank's numbers to all. Called by the leader's first warp.
    DEVICE void say(const World& world) const {
        // Each count is read once: the messages to each rank, then the numbers.
        constexpr int most = (count_words + 31) / 32;
        int lane = threadIdx.x & 31;
        i64 counts[most];
        i64 flags = visit_counts(world, [&](i64 i, i64 n) { counts[i / 32] = n; });
        fence_system();
        for (int base = 0; base < world.size * said_words; base += 32) {
            int i = base + lane, r = i / said_words, k = i % said_words;
            int from = k == 0 ? r : (int)world.size + k - 1;  // which count it is
            i64 value = flags;
#pragma unroll
            for (int j = 0; j < most; ++j) {
                i64 other = __shfl_sync(~0u, counts[j], from & 31);
                if (k <= number_count && from / 32 == j) value = other;
            }
            if (i >= world.size * said_words) continue;
            u64* to = r == world.rank ? world.heard_of(r) : world.slot(r, meetings, world.rank);
            store_pair(to + 2 * k, tagged((u32)value, step), tagged((u32)((u64)value >> 32), step));
        }
    }
    // Waits for this rank's other blocks, and reads what they counted. Called by the first warp of every block.
    DEVICE void meet_alone(const World& world) {
        if (threadIdx.x == 0 && gridDim.x > 1) meet_blocks(world.control + arrived_at, barriers);
        __syncwarp();
        i64* own = said + world.rank * said_words;
        i64 flags = visit_counts(world, [&](i64 i, i64 n) {
            i64 number = i - world.size;
            if (number >= 0 && number < number_count) own[1 + number] = n;
            else if (i == world.rank) own[0] = n;
        });
        if (threadIdx.x == 0) own[said_words - 1] = flags;
    }
    // Chooses the set of counts of the phase after meeting `step`. The set before that of this meeting is cleared: all
    // blocks have read it, and the phase after the next adds to it.
    DEVICE void turn(const World& world) {
        auto set = [&](i64 of) { return (i64*)world.control + counts_at + of % count_sets * count_words; };
        if (threadIdx.x == 0) shared_counts() = set(step + 1);
        if (blockIdx.x) return;
        for (i64 i = threadIdx.x; i <= world.size + number_count; i += 32) store(set(step + 2) + i, (i64)0);
    }
    // Calls f(i, a, b) for each number of the ranks once both words, at from(i), have this meeting's tag. Returns false
    // as soon as stop(polls) is true, which all lanes call.
    template <class From, class Stop, class F>
    DEVICE bool poll(i64 ranks, From from, Stop stop, F f) const {
        int lane = threadIdx.x & 31;
        u32 polls = 0;
        for (i64 base = 0; base < ranks * said_words; base += 32 * at_once) {
            u32 open = 0;
#pragma unroll
            for (int j = 0; j < at_once; ++j) open |= (u32)(base + j * 32 + lane < ranks * said_words) << j;
            while (__any_sync(~0u, open)) {
                u64 a[at_once], b[at_once];
#pragma unroll
                for (int j = 0; j < at_once; ++j)
                    if (open >> j & 1) load_pair(from(base + j * 32 + lane), a[j], b[j]);
#pragma unroll
                for (int j = 0; j < at_once; ++j)
                    if (open >> j & 1 && has_tag(a[j], step) && has_tag(b[j], step))
                        f(base + j * 32 + lane, a[j], b[j]), open &= ~(1u << j);
                if (__any_sync(~0u, open) && stop(++polls)) return false;
            }
        }
        return true;
    }
    // Reads the numbers of the ranks into `said`, by the first warp of every block, which arrived at the meeting at clock
    // `began` or later. Returns false if the launch ends instead. The leader decides that, once it has waited for its
    // patience. So a block that hears all within half of that goes on. Otherwise the leader announces that it intends to
    // leave, then looks once more; a block that has heard all checks for the announcement. The fences put these four
    // accesses into one order, so no block goes on when others leave.
    DEVICE bool hear(const Program& program, bool leads, i64 began) {
        const World& world = program.world;
        i64 rank = world.rank, patience = world.patience * clocks_per_nanosecond;
        if (leads) began = clock64();  // the others arrived before
        u64 tag = (u64)program.launch << 32 | (u32)step;
        auto from = [&](i64 i) {
            i64 r = i / said_words;
            return (r == rank ? world.heard_of(r) : world.slot(rank, meetings, r)) + i % said_words * 2;
        };
        auto take = [&](i64 i, u64 a, u64 b) { said[i] = (i64)((u64)(u32)b << 32 | (u32)a); };
        auto stop = [&](u32 polls) {
            if (!leads) return polls % 16 == 0 && __any_sync(~0u, load(world.control + leaves_at) == tag);
            bool late = polls % clock_polls == 0 && clock64() - began > patience;
            return (bool)__any_sync(~0u, late);
        };
        bool all = poll(world.size, from, stop, take);
        if (all && (leads || __all_sync(~0u, clock64() - began < patience / 2))) {
            fence_system();
            return true;
        }
        if (leads) {
            store(world.control + intends_at, tag);
            fence_in_order();
            all = poll(world.size, from, [](u32) { return true; }, take);  // one look
            __syncwarp();
            store(world.control + (all ? stays_at : leaves_at), tag);
        }
        fence_in_order();
        if (!leads && all && load(world.control + intends_at) == tag) {
            bool stays = false, leaves = false;
            while (!__any_sync(~0u, stays || leaves)) {
                stays = load(world.control + stays_at) == tag, leaves = load(world.control + leaves_at) == tag;
            }
            all = !__any_sync(~0u, leaves);
        }
        return all;
    }
    // Notes that the host wants the ranks to leave. One block of rank 0 looks, once in a while: to read the
    // host's word takes as long as a meeting.
    DEVICE void look(const World& world) {
        if (world.rank || clock64() - looked < world.patience * clocks_per_nanosecond) return;
        looked = clock64();
        if (load((const u32*)world.host)) told = true;
    }
    // Called by all threads of all blocks, after `add`. Afterwards the state is that of the next phase, and `left` tells
    // if the launch ends.
    DEVICE void meet(const Program& program, bool resumed) {
        const World& world = program.world;
        if (threadIdx.x >= 32) {
            __syncthreads();
            return;
        }
        bool alone = program.alone(state), inside = alone || world.size == 1, first = threadIdx.x == 0, last = false;
        i64 began = clock64();
        if (first) {
            ++step, ++barriers;
            if (blockIdx.x == 0 && (told || began - born > world.stay * clocks_per_nanosecond))
                store(world.number(number_count), (i64)wants_to_leave);
            if (!inside) last = arrive_last(world.control + arrived_at);
        }
        last = __shfl_sync(~0u, last, 0);
        if (!alone && world.apart) {  // all blocks leave, and the host carries the rank's words
            if (last) world.tell_host(program, state, meetings, threadIdx.x, 32);
            if (first) --step, left = at_meeting;
            __syncthreads();
            return;
        }
        if (last && !resumed) say(world);
        if (first && !alone && blockIdx.x == 0) look(world);  // once it has arrived, since all wait for that
        bool all = true;
        if (inside) meet_alone(world);
        else all = hear(program, last, began);
        if (all) turn(world);
        __syncwarp();
        if (threadIdx.x < said_words) Heard::add_up(said, world.size, threadIdx.x);
        __syncwarp();
        if (first) {
            if (all) {
                meetings += !alone;
                program.next(state, heard(world));
                // A meeting of the own blocks alone does not tell which ranks want to leave.
                bool heard_all = !alone || world.size == 1;
                left = heard_all && heard(world).any(wants_to_leave) && state.phase ? stayed : ended;
            } else {
                --step;
                left = waits;
            }
        }
        __syncthreads();
    }
    // Adds to a number in shared memory, whose atomics of 64 bits would be loops.
    static DEVICE void add_halves(u32 (&halves)[2], u64 v) {
        u32 low = (u32)v, carry = atomicAdd(halves, low) + low < low, high = (u32)(v >> 32) + carry;
        if (high) atomicAdd(halves + 1, high);
    }
    // Adds what the threads counted, by one addition for each block and number, once all of the block are here.
    DEVICE void add(const World& world, const Numbers& mine) {
        i64 any = 0;
        for (int k = 0; k < number_count; ++k) any |= mine.of[k];
        for (int k = 0; __any_sync(~0u, any != 0) && k < number_count; ++k)
            if (__any_sync(~0u, mine.of[k] != 0)) {
                i64 sum = mine.of[k];
                for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
                if ((threadIdx.x & 31) == 0) add_halves(sums[k], (u64)sum);
            }
        __syncthreads();
        if (threadIdx.x < number_count) {
            u32(&halves)[2] = sums[threadIdx.x];
            if (i64 sum = (i64)((u64)halves[1] << 32 | halves[0])) {
                atomic_add(world.number((int)threadIdx.x), sum);
                halves[0] = halves[1] = 0;
            }
        }
    }
    // Loads the state, and the numbers heard before this launch. Returns true if the ranks have not met yet since the
    // phase's work.
    DEVICE bool recall(const Program& program) {
        const World& world = program.world;
        for (i64 i = threadIdx.x; i < world.size * said_words; i += blockDim.x) {
            u64 a = 0, b = 0;  // nothing before the first meeting
            if (program.resume) load_pair(world.heard_of(0) + i * 2, a, b);
            said[i] = (i64)((u64)(u32)b << 32 | (u32)a);
        }
        for (i64 i = threadIdx.x; i < world.table_words(); i += blockDim.x) shared_tables()[i] = world.tables[i];
        if (threadIdx.x < number_count) sums[threadIdx.x][0] = sums[threadIdx.x][1] = 0;
        if (threadIdx.x == 0) {
            step = (i64)load(world.control + step_at), meetings = (i64)load(world.control + meetings_at);
            barriers = load(world.control + arrived_at) >> 24;  // no barrier ends without this block
            born = looked = clock64(), left = ended;
            state = typename Program::State{};
            if (program.resume) load_state(world, state);
            else program.begin(state);
            // A rank 0 that mostly waits would never be here long enough to look.
            told = program.resume && world.rank == 0 && blockIdx.x == 0 && load((const u32*)world.host);
        }
        __syncthreads();
        if (threadIdx.x < said_words) Heard::add_up(said, world.size, threadIdx.x);
        __syncthreads();
        if (threadIdx.x == 0 && program.resume == carried) {
            ++step, ++meetings;
            program.next(state, heard(world));
        }
        __syncthreads();
        if (threadIdx.x < 32) turn(world);
        __syncthreads();
        return program.resume && load(world.control + waiting_at);
    }
    DEVICE void keep(const World& world) const {
        if (blockIdx.x || threadIdx.x) return;
        keep_state(world, state, left);
        for (i64 i = 0; i < world.size * said_words; ++i) {  // the others write to their slots again
            if (i / said_words == world.rank && left == waits) continue;  // the leader wrote them
            store_pair(world.heard_of(0) + 2 * i, tagged((u32)said[i], step), tagged((u32)((u64)said[i] >> 32), step));
        }
        store(world.control + step_at, (u64)step);
        store(world.control + meetings_at, (u64)meetings);
        store(world.control + waiting_at, (u64)(left == waits));
    }
};

template <class Program> DEVICE void drive(const Program& program) {
    __shared__ char memory[sizeof(Gathering<Program>)] __attribute__((aligned(16)));
    Gathering<Program>& all = *(Gathering<Program>*)memory;
    for (u32 i = threadIdx.x; i < sizeof(Program) / 8; i += blockDim.x)
        ((u64*)&shared_program<Program>())[i] = ((const u64*)&program)[i];
    bool waiting = all.recall(program);
    while (all.state.phase && !all.left) {
        Grid grid;
        // The compiler cannot know that this is the same in all phases. Otherwise it would compute before the loop what
        // phases make of it, and keep it in registers, or spill it.
        asm volatile("" : "+r"(grid.thread));
        if (!waiting) all.add(program.world, program.step(grid, all.state, all.heard(program.world)));
        all.meet(program, waiting);
        waiting = false;
    }
    all.keep(program.world);
}
