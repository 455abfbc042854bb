"""What is read from a kernel's C++ declaration."""

from __future__ import annotations

import pytest

from mgraph.kernels.source import Field, read_program

VIEW = """
struct Inner {
    const f32* rank;
    i64 n;
    DEVICE i64 twice() const {
        i64 local;
        local = 2 * n;
        return local;
    }
};
"""
KERNEL = """
template <class View>
struct Step {  // a comment
    static constexpr int lanes = WIDTH;
    static constexpr bool fast = true;
    View graph;
    Pair pair;
    const u8* flags;
    u64 seed;
    f64 scale;  // with a comment
    DEVICE void operator()(Grid grid) const {
    i64 not_a_field;
    }
};
struct Pair {
    i8* a;
    u16_like* b;
};
"""


def read(text, write, view=None, **defines):
    return read_program(write(text), "kernels/platform/host.h", tuple(sorted(defines.items())), view)


def test_fields_in_order_with_structs_inside(write):
    view = write(VIEW, "view")
    program = read(KERNEL.replace("    u16_like* b;\n", ""), write, (view, "Inner"), WIDTH=8)
    (kernel,) = program.kernels
    assert (kernel.name, kernel.lanes, kernel.template, program.view) == ("Step", 8, True, "Inner")
    inner = (Field("rank", "float32", True), Field("n", "int64"))
    assert kernel.fields == (
        Field("graph", "struct", inner=inner),
        Field("pair", "struct", inner=(Field("a", "int8", True),)),
        Field("flags", "uint8", True),
        Field("seed", "uint64"),
        Field("scale", "float64"),
    )
    assert kernel.nbytes == 8 * 6


def test_a_template_needs_a_view(write):
    text = KERNEL.replace("    u16_like* b;\n", "")
    assert read(text, write, None, WIDTH=8).kernels == ()


def test_unknown_and_narrow_fields_are_named(write):
    with pytest.raises(ValueError, match="u16_like"):
        read(KERNEL, write, (write(VIEW, "view"), "Inner"), WIDTH=8)
    for kind in ("u32", "f32", "bool", "Missing"):
        text = "struct K {\n    static constexpr int lanes = 1;\n    KIND x;\n    void operator()(Grid) const {}\n};\n"
        with pytest.raises(ValueError, match=f"`{kind} x` is not 8 bytes"):
            read_program(write(text.replace("KIND", kind), kind), "kernels/platform/host.h", (), None)


def test_a_constant_chooses_types(write):
    choice = """#if BITS == 16
using Item = u16;  // a comment
using Other = i32;
#elif BITS == 64
using Item = f64;
using Other = u8;
#endif
"""
    text = choice + KERNEL.replace("u16_like*", "Item*").replace("const u8* flags", "const Other* flags")
    view = (write(VIEW, "view"), "Inner")
    for bits, item, other in ((16, "uint16", "int32"), (64, "float64", "uint8")):
        (kernel,) = read(text, write, view, WIDTH=8, BITS=bits).kernels
        kinds = {field.name: field for field in kernel.fields}
        assert kinds["flags"] == Field("flags", other, True)
        assert kinds["pair"].inner == (Field("a", "int8", True), Field("b", item, True))
    for defines in ({"BITS": 32}, {}):
        with pytest.raises(ValueError, match=r"(Item|Other)\* "):
            read(text, write, view, WIDTH=8, **defines)


def test_large_shared_memory_is_said_or_none(write):
    text = "struct K {\n    static constexpr int lanes = 1;\n    SHARED\n    void operator()(Grid) const {}\n};\n"
    assert read(text.replace("    SHARED\n", ""), write).kernels[0].shared == 0
    large = write(text.replace("SHARED", "static constexpr int shared = 65536;"), "large")
    assert read_program(large, "kernels/platform/host.h", (), None).kernels[0].shared == 65536


def test_lanes_must_be_said(write):
    with pytest.raises(ValueError, match="kernel K in .* lanes"):
        read("struct K {\n    i64 n;\n    DEVICE void operator()(Grid grid) const {}\n};\n", write)


def test_a_launch_can_name_each_field(write):
    text = "struct K {\n    static constexpr int lanes = 1;\n    i64 in;\n    void operator()(Grid) const {}\n};\n"
    with pytest.raises(ValueError, match="kernel K in .* has a field 'in', which is a keyword of Python"):
        read(text, write)


def test_includes_are_inlined_once(write):
    program = read('#include "kernels/search.cuh"\n#include "kernels/search.cuh"\n', write)
    assert program.text.count("i64 lower_bound(") == 1
    assert '#include "' not in program.text
    assert "#pragma once" not in program.text


def test_defines_come_first(write):
    text = "constexpr int slots = LEAF * TILE;\n"
    assert read(text, write, LEAF=32, TILE=4).text.startswith("#define LEAF 32\n#define TILE 4\n")


def test_defines_that_nothing_names_are_left_out(write):
    """So that programs that do not differ by them are one library."""
    text = "constexpr int slots = LEAF;\n"
    program = read(text, write, LEAF="2 * TILE", TILE=4)
    assert program.text.startswith("#define LEAF 2 * TILE\n#define TILE 4\n")
    assert program == read(text, write, LEAF="2 * TILE", TILE=4, WEIGHTED=1)


def test_every_kernel_file_can_be_read():
    program = read_program(
        "structures/read.cuh", "kernels/platform/cuda.cuh", (), ("structures/csr/view.cuh", "CsrView")
    )
    assert {k.name for k in program.kernels} == {
        "CommonNeighbors", "Degrees", "EdgeWeights", "HasEdges", "Neighbors", "Weights"
    }  # fmt: skip
