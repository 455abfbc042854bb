"""The constants that are read from kernel sources: what is read of a text, and that a compiler reads the same."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

from mgraph.kernels import constants
from mgraph.kernels.constants import Constants
from mgraph.kernels.source import ROOT, read_program

TEXT = """
#include "kernels/bits.cuh"
#ifndef DENSE  // 1: no gaps
#define DENSE 0
#endif
constexpr i64 slots = 1 << 12, leaves = slots / LEAF;  // of a part
constexpr u32 nobody = ~0u, most = nobody - 1;
constexpr u64 everything = ~(u64)0;
constexpr i64 absent = -2, sure = (i64)1 << 62, half = (slots + 1) % 10 ? 3 : LEAF;
constexpr int picked = DENSE ? 8 : 2 * (3 + 4) - 0x1f % 7;
constexpr bool wide = LEAF > 32 && !DENSE, all = true;
constexpr f64 one = 1152921504606846976.0;
constexpr int lanes_here = Tile<32>::size(), given = UNKNOWN;
enum Status {
    updates,  // of edges
    misses = 4, unknown, status_words
};
enum Outcome : u8 { kept, gone };
struct alignas(16) Window {
    u32 leaf, leaves;
    const u8* counts;  // may be null
    u16 level = 0, part = 1;
    DEVICE i64 last() const { return leaf + leaves; }
    DEVICE void clear() {
        i64 local;
        leaf = 0;
    }
};
struct Pair { u8 a; u64 b; };
struct Nested {
    static constexpr int width = 4, room = width * sizeof(Window) + sizeof(u32);
    enum Kind { none, own };
    Pair pairs[2];
    u32 last, unused[3];
};
struct Odd {
    Tile<32> tile;
};
template <int most, int by> struct Dealer {
    static constexpr int cells = 16, bytes = most * by + 4 * cells;
};
struct Fill {
    static constexpr int lanes = Nested::width;
    static constexpr int shared = Dealer<slots / 2, 3>::bytes;
    i64 n;
    DEVICE void operator()(Grid grid) const {}
};
#if DENSE
constexpr int either = 1;
#else
constexpr int either = 2;
#endif
"""
VALUES = {
    "slots": 4096, "leaves": 64, "nobody": 2**32 - 1, "most": 2**32 - 2, "everything": 2**64 - 1, "absent": -2,
    "sure": 1 << 62, "half": 3, "picked": 11, "wide": 1, "all": 1, "word_bits": 32, "updates": 0, "misses": 4,
    "unknown": 5, "status_words": 6, "kept": 0, "gone": 1, "Nested::width": 4, "Nested::room": 132, "Nested::none": 0,
    "Nested::own": 1, "Fill::lanes": 4, "Fill::shared": 6208, "Dealer::cells": 16,
}  # fmt: skip


@pytest.fixture
def read(write):
    return constants(write(TEXT), LEAF=64)


def test_values(read):
    assert {name: read[name] for name in VALUES} == VALUES
    assert {name for name in read if name not in VALUES} == {
        "one", "lanes_here", "given", "either", "Dealer::bytes",
    }  # fmt: skip
    assert len(read) == len(VALUES) + 5


def test_enumerators_in_order(read):
    assert read.enums == {"Status": ("updates", "misses", "unknown", "status_words"), "Outcome": ("kept", "gone")}


def test_sizes_of_structs(read):
    assert {name: read.size(name) for name in ("Window", "Pair", "Nested")} == {"Window": 32, "Pair": 16, "Nested": 48}


def test_macros_change_them(write):
    path = write(TEXT)
    assert constants(path, LEAF=16)["leaves"] == 256
    assert constants(path, LEAF=16, DENSE=1)["picked"] == 8
    assert constants(path, LEAF=16)["wide"] == 0


def test_missing_names_are_errors(read):
    with pytest.raises(KeyError, match="no constant 'slot', only .*slots"):
        read["slot"]
    with pytest.raises(KeyError, match="no struct 'Windows', only .*Window"):
        read.size("Windows")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("one", "f64, no integer"),
        ("lanes_here", "Tile is not known"),
        ("either", "stated twice"),
        ("given", "UNKNOWN is not known"),
        ("Dealer::bytes", "most is not known"),
    ],
)
def test_what_is_not_simple_is_an_error_when_it_is_asked_for(read, name, says):
    with pytest.raises(ValueError, match=f"cannot read {name} of .*{says}"):
        read[name]


@pytest.mark.parametrize(
    "text", ["1 +", "(1", "1 2", "f(3)", "-5 / 2", "5 >> -1", "a ? 1", "3000000000", "sizeof(Odd)", ""]
)
def test_expressions_that_are_not_understood_are_no_values(text):
    found = Constants("test.cuh", f"{TEXT}constexpr int a = 1, bad = {text};\n", {"LEAF": 1})
    assert found["a"] == 1
    with pytest.raises(ValueError, match=r"cannot read bad of test\.cuh"):
        found["bad"]


def test_they_cannot_be_changed(read):
    with pytest.raises(TypeError):
        read["slots"] = 3
    with pytest.raises(TypeError):
        read.enums["Status"] = ()


def test_lanes_and_shared_memory_of_kernels_are_read_so(write):
    (kernel,) = read_program(write(TEXT), "kernels/platform/host.h", (("LEAF", 64),), None).kernels
    assert (kernel.lanes, kernel.shared) == (4, 6208)


DEFINES = {
    "BY_WEIGHT": 0, "DEPTH_BITS": 8, "EDGE": 0, "LENGTHS": 32, "REDUCE": 0, "RESULT": 64, "SHARE_BITS": 16,
    "VALUE_BITS": 64, "HUB_DEGREE": 1024, "LEAF": 16, "LIMIT": 100, "LOAD": 70, "PLACED": 1,
    "SLAB": 16, "TILE": 4, "WEIGHTED": 1,
}  # fmt: skip
FILES = sorted(str(file.relative_to(ROOT)) for file in ROOT.rglob("*.cuh") if file.parent.name != "platform")
INCLUDED = {name for file in FILES for name in re.findall(r'#include "(.*)"', (ROOT / file).read_text())}


def stated(found: Constants) -> list[str]:
    """Everything that can be read, as assertions in C++."""
    lines = []
    for name in found:
        try:
            value = found[name]
        except ValueError:
            continue
        struct = name.rpartition("::")[0]
        if not struct or not found.of_struct(struct).parameters:
            lines.append(
                f"static_assert({name} == {value if value < 1 << 63 else f'{value}u'}, {name!r});".replace("'", '"')
            )
    for name in found._structs:
        try:
            lines.append(f'static_assert(sizeof({name}) == {found.size(name)}, "size of {name}");')
        except ValueError:
            continue
    return lines


def view_of(file: str) -> tuple[str, str]:
    """A view with which a file compiles: those of packed memory arrays need what theirs declares."""
    folder = file.split("/")[1]
    if folder in ("gpma", "gpma_plus", "lpma", "pma"):
        return f"structures/{'lpma' if folder == 'lpma' else 'gpma_plus'}/view.cuh", "PmaView"
    return "structures/csr/view.cuh", "CsrView"


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=pytest.mark.slow) if file.startswith("algorithms") or file in INCLUDED else file
        for file in FILES
    ],
)
def test_a_compiler_reads_the_same(file, tmp_path):
    program = read_program(file, "kernels/platform/host.h", tuple(DEFINES.items()), view_of(file))
    asserted = stated(constants(file, **DEFINES))
    path = tmp_path / "asserted.cpp"
    path.write_text(program.text + "\n".join(asserted) + "\n")
    command = [
        *shlex.split(os.environ.get("CXX", "g++")),
        "-std=c++17",
        "-fsyntax-only",
        "-Wno-unknown-pragmas",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_all_of_the_kernels_structs_are_read():
    """Their arguments are fields of 8 bytes, so that every size is known, but where a template gives a type."""
    found = constants("structures/slabgraph/slabgraph.cuh", **DEFINES)
    kernels = read_program(
        "structures/slabgraph/slabgraph.cuh", "kernels/platform/host.h", tuple(DEFINES.items()), None
    ).kernels
    assert {k.name: k.nbytes for k in kernels} == {k.name: found.size(k.name) for k in kernels}
