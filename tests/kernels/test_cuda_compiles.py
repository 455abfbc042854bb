"""Every kernel file, for every structure's view, is CUDA too: nvcc compiles what NVRTC would be given. Needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgraph.algorithms.primitives.gather.expression import parse_edge
from mgraph.kernels import launch, source
from mgraph.kernels.cuda import _entries
from mgraph.structures import create, names, sample_sort

NVCC = shutil.which("nvcc")
CHECK = ("--ptx", "-fdevice-syntax-only")  #: everything but the code, in a fifth of the time
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not here")

ALGORITHMS = (("HUB_DEGREE", 1024),)  # what the algorithms' files are compiled with
#: the macros that an algorithm's file is compiled with besides, where there are several kinds
KINDS = {
    "algorithms/centrality/pagerank/pull.cuh": [
        (("SHARE_BITS", bits), ("BY_WEIGHT", weighted)) for bits, weighted in ((16, 0), (32, 0), (64, 0), (64, 1))
    ],
    "algorithms/centrality/pagerank/carry.cuh": [(("SHARE_BITS", bits), ("BY_WEIGHT", 0)) for bits in (16, 32)],
    "algorithms/centrality/pagerank/forward_push.cuh": [()],
    "algorithms/centrality/pagerank/power_iteration.cuh": [
        (("SHARE_BITS", bits), ("FIRST_BITS", first), ("BY_WEIGHT", weighted))
        for bits, first, weighted in ((16, 16, 0), (16, 32, 0), (32, 32, 0), (64, 64, 0), (64, 64, 1))
    ],
    "algorithms/centrality/pagerank/push_iteration.cuh": [(("BY_WEIGHT", weighted),) for weighted in (0, 1)],
    "algorithms/centrality/pagerank/ranks.cuh": [(("BY_WEIGHT", weighted),) for weighted in (0, 1)],
    "algorithms/primitives/gather/gather.cuh": [
        (("EDGE", parse_edge(edge).code), ("REDUCE", reduce), ("RESULT", result), ("VALUE_BITS", bits))
        for edge, reduce, result, bits in (
            ("min(value ** 2 % 7, u // 3) if not weight > 1 or v else floor(sqrt(abs(value)))", 1, 64, 64),
            ("value", 0, 32, 32),
            ("value < u or value and weight", 3, 0, 64),
        )
    ],
    "algorithms/primitives/vectors.cuh": [(("VALUE_BITS", bits),) for bits in (32, 64)],
    "algorithms/paths/near_far/relax_blockwise.cuh": [(("LENGTHS", bits),) for bits in (0, 32, 64)],
    "algorithms/paths/near_far/search.cuh": [(("LENGTHS", bits),) for bits in (0, 32, 64)],
    "algorithms/paths/incremental_paths/incremental_paths.cuh": [(("LENGTHS", bits),) for bits in (0, 32, 64)],
    "algorithms/paths/bfs/search.cuh": [(("PARENTS", parents),) for parents in (0, 1)],
    "algorithms/paths/bfs/tree.cuh": [(("DEPTH_BITS", bits),) for bits in (8, 32)],
    "algorithms/paths/sssp/lengths_of_hops.cuh": [(("LENGTHS", bits),) for bits in (32, 64)],
    "algorithms/paths/sssp/tree.cuh": [(("LENGTHS", bits),) for bits in (32, 64)],
}
SORTS = [tuple(sorted(constants.items())) for constants in sample_sort.CONSTANTS]
FOLDERS = {str(f.parent.relative_to(source.ROOT)) for f in source.ROOT.glob("structures/*/*.cuh")}
PMA = "structures/pma"  # compiled over the views of the structures that share it


def parts(file: str) -> set[str]:
    """The files of its folder that a kernel file includes, which are compiled with it."""
    included = (found[1] for found in source._INCLUDE.finditer((source.ROOT / file).read_text()))
    own = [part for part in included if Path(part).parent == Path(file).parent]
    return {*own, *(deeper for part in own for deeper in parts(part))}


PARTS = {part for file in KINDS for part in parts(file)} - set(KINDS)  # of files that need macros


def whole(file: str) -> str:
    """The text of a file and of its parts."""
    return "".join((source.ROOT / one).read_text() for one in (file, *sorted(parts(file) & PARTS)))


FILES = sorted(
    str(f.relative_to(source.ROOT))
    for f in source.ROOT.rglob("*.cuh")
    if f.parent.name != "platform" and f.name != "view.cuh" and str(f.relative_to(source.ROOT)) not in PARTS
)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name} plain": (name, {}) for name in names() if name != "gpma"},  # whose view is gpma+'s
    **{f"{name} weighted": (name, {"weighted": True}) for name in names() if name not in ("csr", "hornet", "gpma")},
    "gpma+ narrow": ("gpma+", {"weighted": True, "leaf": 8}),
    "gpma narrow": ("gpma", {"weighted": True, "leaf": 8}),
    "lpma narrow": ("lpma", {"weighted": True, "leaf": 8}),
    "gpma+ wide": ("gpma+", {"weighted": True, "leaf": 128}),
}


def owner(file: str) -> str | None:
    """The folder of the structure that a kernel file belongs to; None for what is nobody's, or csr's."""
    folder = str(Path(file).parent)
    return folder if folder in FOLDERS and folder != "structures/csr" else None


def programs(variant: str) -> list[source.Program]:
    """What is compiled for a structure: every template over its view, what it loads, and with csr what is nobody's."""
    name, options = VARIANTS[variant]
    view = create(name, 4, **options).view()
    own, defines = str(Path(view.source).parent), tuple(sorted((*view.defines, *ALGORITHMS)))
    found = []
    for file in FILES:
        kinds = [tuple(sorted((*defines, *more))) for more in KINDS.get(file, [()])]
        if "template <class View>" in whole(file):
            if "leaf" in options and not is_structures(file):  # the algorithms see the same text
                continue
            over = (view.source, view.type)
            found += [source.read_program(file, "kernels/platform/cuda.cuh", kind, over) for kind in kinds]
        elif name == "csr" and owner(file) is None:
            kinds = SORTS if file == "kernels/sample_sort.cuh" else kinds
            found += [source.read_program(file, "kernels/platform/cuda.cuh", kind, None) for kind in kinds]
    for _, file, over, constants in launch._libraries:  # with the constants that the structure gave
        mine = owner(file) == own if over is None else owner(file) is not None and over == (view.source, view.type)
        if mine and set(view.defines) <= set(constants):
            found.append(source.read_program(file, "kernels/platform/cuda.cuh", constants, over))
    return [program for program in found if program.kernels]


def is_structures(file: str) -> bool:
    return file.startswith("structures/")


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if (name.endswith("plain") and name != "lpma plain") or name == "gpma narrow"]
)
def test_a_structures_own_files_compile(variant, tmp_path):
    """Those that gpma shares with gpma+ compile there."""
    folder = "structures/gpma/" if variant == "gpma narrow" else "structures/"
    own = [program for program in programs(variant) if program.name.startswith(folder)]
    assert own
    check(own, tmp_path)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("variant", ["csr plain", "gpma+ plain"])
def test_files_that_are_no_structures_compile(variant, tmp_path):
    """csr's are those without a view; `View` holds every other structure's view to what these files use of one."""
    others = [program for program in programs(variant) if not is_structures(program.name)]
    check(others if variant == "gpma+ plain" else [one for one in others if one.view is None], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_compiles_to_machine_code(variant, tmp_path):
    compiled = programs(variant)
    assert len(compiled) > 1
    for program in compiled:
        compile_program(program, tmp_path)


def compile_program(program, folder):
    """Compile a program to machine code with nvcc, in a folder."""
    said = compiled(program.text + _entries(program), folder, "--cubin")
    assert not said, f"{program.name} over {program.view}:\n{said}"


def check(programs, folder):
    """Compile programs but for their code, in one call, each in a namespace: CUDA's headers take most of a call."""
    said = compiled("".join(map(in_a_namespace, range(len(programs)), programs)), folder, *CHECK)
    assert not said, said


def in_a_namespace(number: int, program: source.Program) -> str:
    text = program.text + _entries(program).replace('extern "C" ', "")
    own = re.findall(r"^#define (\w+)", text, re.M)
    text = re.sub(r"(?<![\w>])::(?=[A-Z])", f"program_{number}::", text)  # structs of the outermost scope
    line = f'#line 1 "{program.name} over {program.view}"\n'
    return f"namespace program_{number} {{\n{line}{text}}}\n" + "".join(f"#undef {name}\n" for name in own)


def compiled(text: str, folder: Path, *to: str) -> str:
    """The errors with which nvcc refuses a text, or nothing."""
    path = folder / "programs.cu"
    path.write_text(text)
    command = [NVCC, "-std=c++17", "-arch=sm_90", *to, "-o", str(path.with_suffix(".cubin")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return (done.stderr or f"status {done.returncode}") if done.returncode else ""


def test_graphs_of_communities_compile(tmp_path):
    view = "algorithms/communities/multilevel/view.cuh", "CoarseView"
    files = "communities/multilevel/multilevel.cuh", "primitives/label_counts.cuh"
    platform = "kernels/platform/cuda.cuh"
    check([source.read_program(f"algorithms/{file}", platform, ALGORITHMS, view) for file in files], tmp_path)


def test_an_error_is_found_and_its_program_named(tmp_path):
    right = source.read_program("kernels/arcs.cuh", "kernels/platform/cuda.cuh", (), None)
    wrong = replace(right, name="wrong.cuh", text=right.text + "DEVICE int broken() { return not_there; }\n")
    with pytest.raises(AssertionError, match='wrong.cuh over None.*"not_there" is undefined'):
        check([right, wrong, right], tmp_path)


@pytest.mark.slow
def test_no_kernel_is_left_out():
    compiled = {k.name for variant in VARIANTS for program in programs(variant) for k in program.kernels}
    texts = [whole(file) for file in FILES]
    declared = {name for text in texts for _, name, body in source._STRUCT.findall(text) if source._is_kernel(body)}
    assert compiled == declared
    assert {"CsrMove", "MergeLeaves", "HasEdges", "MakeKeys"} <= declared
