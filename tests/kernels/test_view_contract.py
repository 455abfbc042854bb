"""structures/view.cuh holds every View to its contract: the compiler refuses one that breaks it, and says how."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mgraph.kernels.source import ROOT, read_program
from mgraph.structures import create, names

GXX, NVCC = shutil.which("g++"), shutil.which("nvcc")
CSR = (ROOT / "structures/csr/view.cuh").read_text()
FIELD = "const f32* weights;"
FIND = "DEVICE i64 find(i64 v, u32 id) const {"
VISIT = "template <class Tile, class F> DEVICE void visit(Tile tile, i64 v, i64 unit, F f) const {"
LIVE = "if (f(live ? load_once(dst + slot) : 0u, slot, live)) return;"
VISITED = "View: void visit(Tile tile, i64 v, i64 unit, F f) const"
CALLED = "View: visit calls f(u32 dst, i64 slot, bool live)"
COPIED = "View: a struct that can be copied by its bytes"
BROKEN = {  # what is replaced in csr's view, by what, and what the compiler must say
    "no degree": ("i64 degree(i64 v)", "i64 size(i64 v)", "View: i64 or u32 degree(i64 v) const"),
    "a degree in floats": ("i64 degree(i64 v)", "f32 degree(i64 v)", "View: i64 or u32 degree(i64 v) const"),
    "no units": ("i64 units(", "i64 pieces(", "View: i64 units(i64 v) const"),
    "units that change it": ("i64 units(i64 v) const", "i64 units(i64 v)", "View: i64 units(i64 v) const"),
    "narrow units": ("i64 units(", "u32 units(", "View: i64 units(i64 v) const"),
    "no weight": ("f32 weight(", "f32 length(", "View: f32 weight(i64 slot) const"),
    "a weight of another type": ("f32 weight(", "f64 weight(", "View: f32 weight(i64 slot) const"),
    "no find": (FIND, FIND.replace("find", "seek"), "View: i64 find(i64 v, u32 dst) const"),
    "a find that says yes or no": (FIND, FIND.replace("i64 find", "bool find"), "View: i64 find(i64 v, u32 dst) const"),
    "not said whether sorted": ("static constexpr bool sorted = true;", "", "View: static constexpr bool sorted"),
    "sorted by its data": ("static constexpr bool sorted = true;", "i64 sorted;", "View: static constexpr bool sorted"),
    "sorted by a variable": ("constexpr bool sorted = true", "bool sorted", "View: static constexpr bool sorted"),
    "sorted at run time": ("constexpr bool sorted = true", "const bool sorted", "sorted"),
    "no visit": (VISIT, VISIT.replace("visit", "walk"), VISITED),
    "a visit that answers": (VISIT, VISIT.replace("void", "bool"), VISITED),
    "a visit without slots": (LIVE, LIVE.replace(" slot, live)", " live, slot)"), CALLED),
    "a visit that hides who is live": (LIVE, LIVE.replace(", live)", ")"), "Visitor"),
    "a destructor": (FIELD, FIELD + " ~CsrView() {}", COPIED),
}  # fmt: skip


#: much like others
ALIKE = (
    "a degree in floats",
    "narrow units",
    "a weight of another type",
    "a find that says yes or no",
    "sorted by its data",
    "sorted by a variable",
    "a visit that answers",
)


def compiled(view: str, type: str, tmp_path: Path, defines: tuple = (), cuda: bool = False) -> str:
    """The compiler's messages for structures/view.cuh over a view."""
    platform = f"kernels/platform/{'cuda.cuh' if cuda else 'host.h'}"
    program = read_program("structures/view.cuh", platform, defines, (view, type))
    path = tmp_path / ("view.cu" if cuda else "view.cpp")
    path.write_text(f"{program.text}\nstatic_assert(AssertView<{type}>::value);\n")
    command = [NVCC, "--ptx", "-fdevice-syntax-only", "-o", "/dev/null"] if cuda else [GXX, "-fsyntax-only"]
    return subprocess.run([*command, "-std=c++17", str(path)], capture_output=True, text=True, timeout=100).stderr


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", names())
def test_every_structure_keeps_it(name, weighted, tmp_path):
    view = create(name, 4, weighted=weighted).view()
    assert "error" not in compiled(view.source, view.type, tmp_path, view.defines)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in ALIKE else case for case in BROKEN]
)
@pytest.mark.parametrize("compiler", ["g++", "nvcc"])
def test_a_view_that_breaks_it_does_not_compile(case, compiler, tmp_path):
    if compiler == "nvcc" and NVCC is None:
        pytest.skip("nvcc is not here")
    old, new, message = BROKEN[case]
    assert CSR.count(old) == 1
    view = tmp_path / "broken.cuh"
    view.write_text(CSR.replace(old, new))
    said = compiled(str(view), "CsrView", tmp_path, cuda=compiler == "nvcc")
    assert "error" in said
    assert message in said
