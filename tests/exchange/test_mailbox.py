"""The messages of mailbox.h among ranks that are C++ threads and share one mapping of each segment.

ThreadSanitizer knows memory by its address, and takes Python's lock for an order among the ranks. So the ranks of
test_contract.py hide races from it: each maps the segments at addresses of its own, and begins each step under
the lock. Here the ranks run many steps without Python between.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.device import Device
from mgraph.exchange.peer import FILE, HEAD, _segment_bytes
from mgraph.exchange.segment import Segment
from mgraph.kernels import load
from mgraph.kernels.source import ROOT

RANKS = """
#include <thread>
#include <vector>

// Every rank is a thread: it sends parts of many lengths to every other in many steps, and counts what arrives wrong.
struct Ranks {
    static constexpr int lanes = 1;
    const u64* segments;
    i64 size;
    i64 slot;
    i64 steps;
    u64 seed;
    i64* wrong;  // for each rank, the bytes, lengths and outcomes that are not as they should be
    i64* messages;  // that it received
    i64* done;  // how many ranks have made all steps

    u64 mixed(u64 x) const {
        x = (x + seed) * 0x9e3779b97f4a7c15ull;
        x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
        return x ^ x >> 32;
    }
    u64 key(i64 step, i64 from, i64 to) const { return mixed((step * size + from) * size + to); }
    u64 length(u64 key) const {
        u64 kind = key % 8;
        if (kind == 0) return 0;
        return kind < 6 ? key / 8 % 100 : key / 8 % (inbox_bytes + 6 * (u64)slot);
    }
    static u8 byte(u64 key, u64 i) { return (u8)((key >> 7) + i * 31 + (i >> 8)); }

    struct Book {
        std::vector<u64> out, out_bytes, in, in_bytes, sent, got, all_sent, all_got;
        std::vector<u8> inbox;
        i64 outcome[3];
        explicit Book(i64 n)
            : out(n), out_bytes(n), in(n), in_bytes(n), sent(n), got(n), all_sent(n), all_got(n),
              inbox(n * inbox_bytes) {}
        Trade trade(const Ranks& all, i64 rank, i64 step) {
            return {step, 7, 1000000, out.data(), out_bytes.data(), in.data(), in_bytes.data(), sent.data(), got.data(),
                    all_sent.data(), all_got.data(), inbox.data(), outcome, all.segments, rank, all.size, all.slot};
        }
    };

    void step(i64 rank, i64 number, Book& book) const {
        std::vector<std::vector<u8>> out(size), into(size);
        for (i64 r = 0; r < size; ++r) {
            u64 k = key(number, rank, r);
            out[r].resize(length(k));
            for (u64 i = 0; i < out[r].size(); ++i) out[r][i] = byte(k, i);
            book.out[r] = (u64)out[r].data(), book.out_bytes[r] = r == rank ? unknown : out[r].size();
            book.in[r] = book.sent[r] = book.got[r] = 0, book.in_bytes[r] = unknown;
        }
        if (mixed(rank + number * 77) % 16 == 0) usleep(600);  // so long that the others go to sleep
        int end;
        while ((end = book.trade(*this, rank, number).run()) == late || end == lacking)
            for (i64 r = 0; r < size; ++r)
                if (r != rank && book.in_bytes[r] != unknown && !book.in[r]) {
                    into[r].resize(book.in_bytes[r]);
                    book.in[r] = (u64)into[r].data();
                }
        wrong[rank] += end != finished;
        for (i64 r = 0; r < size; ++r) {
            if (r == rank) continue;
            u64 k = key(number, r, rank);
            wrong[rank] += book.in_bytes[r] != length(k);
            for (u64 i = 0; i < length(k); ++i) wrong[rank] += ((const u8*)book.in[r])[i] != byte(k, i);
            messages[rank] += book.got[r];
        }
    }
    // The last rank takes no part in one step more, and is closed by another thread; it closes the others.
    void end(i64 rank, Book& book) const {
        __atomic_fetch_add(done, 1, __ATOMIC_SEQ_CST);
        if (rank == size - 1) {
            while (__atomic_load_n(done, __ATOMIC_SEQ_CST) < size) usleep(1000);
            for (i64 r = 0; r < size - 1; ++r) launch(Stop{(u8*)segments[r], size, slot}, 1, 1);
            return;
        }
        for (i64 r = 0; r < size; ++r) {
            book.out_bytes[r] = r == rank ? unknown : 0;
            book.sent[r] = book.got[r] = 0, book.in_bytes[r] = unknown;
        }
        int end;
        while ((end = book.trade(*this, rank, steps).run()) == late) {}
        wrong[rank] += end != stopped;
    }
    void play(i64 rank) const {
        Book book(size);
        launch(Greet{segments, rank, size, slot}, size, 1);  // with lanes of this thread, where lanes are simulated
        Segment own{(u8*)segments[rank], size, slot};
        for (i64 r = 0; r < size; ++r)
            while (!read_from(own.mapped(r))) sched_yield();
        for (i64 number = 0; number < steps; ++number) step(rank, number, book);
        end(rank, book);
    }
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) {
            (void)i;
            std::vector<std::thread> team;
            for (i64 rank = 0; rank < size; ++rank) team.emplace_back([this, rank] { play(rank); });
            for (auto& member : team) member.join();
        }
    }
};
"""
SLOT = HEAD + 1024  # so that a part takes up to 23 messages


def run(file: Path, size: int, steps: int, seed: int) -> None:
    """Compile `file`, which has the mailbox and `Ranks`, and run it; `AssertionError` if a part arrives wrong."""
    device = Device("cpu", threads=1)
    segments = []
    for _ in range(size):
        segment, place = Segment.create(_segment_bytes(size, SLOT), {})
        Segment.unlink(place)
        segments.append(segment)
    addresses = np.array([segment.address for segment in segments], np.uint64)
    wrong, messages = np.zeros((2, size), np.int64)
    ranks = load(device, str(file)).Ranks
    given = {"segments": addresses, "size": size, "slot": SLOT, "steps": steps, "seed": seed}
    ranks(1, **given, wrong=wrong, messages=messages, done=np.zeros(1, np.int64))
    assert wrong.tolist() == [0] * size
    assert (messages > steps * (size - 1)).all()  # some parts took several


def write(folder: Path, mailbox: str = f'#include "{FILE}"') -> Path:
    path = folder / "ranks.h"
    path.write_text("#pragma once\n" + mailbox.removeprefix("#pragma once\n") + RANKS)
    return path


@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 5))])
def test_parts_arrive_whole(tmp_path, size):
    """In the thread build of tests/sanitize.sh, also without a race."""
    run(write(tmp_path), size, 400, int(fresh_rng().integers(1 << 62)))


BELL = {"__ATOMIC_SEQ_CST": "__ATOMIC_RELAXED"}  # orders most of what the others order too
TAKEN = "write_to(own.taken(r), ++all_got[r])"
RACES: dict[str, dict[str, str]] = {  # by what is taken from the mailbox
    "nothing": {},
    "the release of a message": {**BELL, "__ATOMIC_RELEASE": "__ATOMIC_RELAXED"},
    "the release of a slot": {**BELL, TAKEN: "__atomic_store_n(own.taken(r), ++all_got[r], __ATOMIC_RELAXED)"},
}


@pytest.mark.parametrize(
    "gone", [gone if "message" in gone else pytest.param(gone, marks=pytest.mark.slow) for gone in RACES]
)
def test_the_thread_sanitizer_finds_what_would_be_a_race(tmp_path, gone):
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-print-file-name=libtsan.so"]
    library = subprocess.run(compiler, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip(f"{compiler[0]} has no libtsan.so")
    text = (ROOT / FILE).read_text()
    for old, new in RACES[gone].items():
        assert old in text
        text = text.replace(old, new)
    file = write(tmp_path, text)
    call = f"import test_mailbox, pathlib; test_mailbox.run(pathlib.Path({str(file)!r}), 2, 100, 1)"
    env = os.environ | {
        "MGRAPH_HOST_BUILD": "thread",
        "LD_PRELOAD": library,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)]),
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, "-c", call], env=env, capture_output=True, text=True, timeout=100)
    if RACES[gone]:
        assert done.returncode == 66
        assert "data race" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
