"""Registers, spills and blocks of the programs that all ranks run together, on the structures that analyses run on.

A kernel of all phases is launched with the registers of its largest phase. Where these are too many for the blocks that
should be on a multiprocessor at once, the compiler spills some to memory. nvcc says how many bytes, and needs no GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from patience import patience
from test_cuda_compiles import KINDS, NVCC, programs

from mgraph.kernels.cuda import CUPYS, OPTIONS, RESERVED, THREADS, TOGETHER, _entries
from mgraph.kernels.source import Program

pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not here")

#: a multiprocessor of sm_90: registers, and how many of them a warp takes at a time; bytes of shared memory; threads
REGISTERS, UNIT, SHARED, MOST = 65536, 256, 228 << 10, 2048
STRUCTURES = ("csr", "gpma+")
RELEASE = "release 13.0"  #: of nvcc, whose bytes these are
#: bytes that a program may spill, in all and in functions that it calls, on csr and on gpma+
SPILLS = {
    "Brandes": (76, 500, 140, 624),
    "PowerIteration SHARE_BITS=16 FIRST_BITS=16 BY_WEIGHT=0": (12, 114, 12, 250),
    "PowerIteration SHARE_BITS=16 FIRST_BITS=32 BY_WEIGHT=0": (12, 184, 140, 252),
    "PowerIteration SHARE_BITS=32 FIRST_BITS=32 BY_WEIGHT=0": (12, 154, 12, 250),
    "PowerIteration SHARE_BITS=64 FIRST_BITS=64 BY_WEIGHT=0": (12, 336, 12, 340),
    "PowerIteration SHARE_BITS=64 FIRST_BITS=64 BY_WEIGHT=1": (12, 348, 12, 344),
    "PushIteration BY_WEIGHT=0": (68, 96, 68, 112),
    "PushIteration BY_WEIGHT=1": (12, 76, 68, 136),
    "Forest": (124, 0, 376, 0),
    "Rounds": (40, 208, 168, 360),
    "Sweep": (272, 0, 684, 0),
    "Colors": (0, 0, 0, 0),
    "Cores": (0, 0, 0, 0),
    "BreadthFirst PARENTS=0": (676, 120, 660, 152),
    "BreadthFirst PARENTS=1": (716, 120, 660, 152),
    "Tree DEPTH_BITS=8": (0, 0, 0, 0),
    "Tree DEPTH_BITS=32": (0, 0, 0, 0),
    "BitParallel": (0, 0, 116, 0),
    "NearFar LENGTHS=0": (192, 0, 612, 0),
    "NearFar LENGTHS=32": (88, 0, 588, 0),
    "NearFar LENGTHS=64": (132, 0, 648, 0),
    "Walking": (0, 0, 0, 0),
}


class Row(NamedTuple):
    """What ptxas says about a program, with the bytes that the kernel and the functions that it calls spill."""

    registers: int
    spilled: int
    apart: int
    blocks: int


def label(program: Program) -> str:
    """A kernel's name with the macros in which its file has several kinds."""
    names = dict.fromkeys(name for kind in KINDS.get(program.name, []) for name, _ in kind)
    chosen = (re.search(rf"^#define {name} (\d+)", program.text, re.M) for name in names)
    (kernel,) = program.kernels
    return " ".join([kernel.name, *(f"{name}={found[1]}" for name, found in zip(names, chosen, strict=True) if found)])


def resident(structure: str) -> list[Program]:
    """The programs that all ranks run together, with the kernel of all phases alone."""
    together = []
    for program in programs(f"{structure} plain"):
        kernels = tuple(kernel for kernel in program.kernels if kernel.entry == "drive")
        together += [replace(program, kernels=kernels)] if kernels else []
    return together


def measured(program: Program, path: Path) -> Row:
    """Compile a program as a wheel's, and read what ptxas says."""
    path.write_text(program.text + _entries(program))
    command = [NVCC, "-cubin", "-arch=sm_90", *OPTIONS, *CUPYS, "-Xptxas", "-v", "-o", f"{path}bin", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(300))
    assert not done.returncode, done.stderr
    (kernel,) = program.kernels
    functions = re.findall(
        r"Function properties for (\w+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
        done.stderr,
    )
    spills = {name: (int(stored), int(loaded)) for name, stored, loaded in functions}
    spilled = sum(spills.pop(f"mgraph_{kernel.name}"))
    registers = int(re.findall(r"Used (\d+) registers", done.stderr)[-1])
    static = re.search(r"(\d+) bytes smem", done.stderr)
    shared = kernel.shared + (int(static[1]) if static else 0) + RESERVED
    of_a_block = -(-32 * registers // UNIT) * UNIT * (TOGETHER // 32)
    blocks = min(REGISTERS // of_a_block, SHARED // shared, MOST // TOGETHER)
    return Row(registers, spilled, sum(map(sum, spills.values())), blocks)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_programs_keep_their_blocks_and_spill_no_more(tmp_path: Path) -> None:
    """Prints the table of docs/notebook/world.md."""
    compiled = {(label(program), at): program for at in STRUCTURES for program in resident(at)}
    paths = [tmp_path / f"{number}.cu" for number in range(len(compiled))]
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        rows = dict(zip(compiled, pool.map(measured, compiled.values(), paths), strict=True))
    names = list(dict.fromkeys(name for name, _ in rows))
    columns = ["kernel", "registers", "blocks", "`csr`", "its functions", "`gpma+`", "its functions"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name in names:
        both = [rows[name, at] for at in STRUCTURES]
        columns = [", ".join(dict.fromkeys(str(row[column]) for row in both)) for column in (0, 3)]
        print(f"| {' | '.join([name, *columns, *(str(n) for row in both for n in (row.spilled, row.apart))])} |")

    # As many blocks as the launch asks for, and no more bytes than recorded. Another compiler has other bytes.
    for each, program in compiled.items():
        (kernel,) = program.kernels
        assert rows[each].blocks >= (kernel.resident or THREADS // TOGETHER), each
    assert names == list(SPILLS)
    if RELEASE in subprocess.run([NVCC, "--version"], capture_output=True, text=True).stdout:
        now = {name: tuple(n for at in STRUCTURES for n in rows[name, at][1:3]) for name in names}
        more = {name: now[name] for name in names if any(map(int.__gt__, now[name], SPILLS[name]))}
        assert not more, f"{more} are more bytes than {[SPILLS[name] for name in more]}"
