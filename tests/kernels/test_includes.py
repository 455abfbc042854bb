"""CUDA files include only their own folder and the layers below it, as Python modules import; and never in a circle."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from mgraph.kernels import source

FILES = {
    str(file.relative_to(source.ROOT)): file.read_text()
    for file in sorted(source.ROOT.rglob("*"))
    if file.suffix in (".cuh", ".h")
}
#: the families of algorithms, a tuple for each layer
FAMILIES = (("centrality", "communities"), ("density", "pairs", "paths", "sampling"), ("primitives",))
PMAS = ("gpma", "gpma_plus", "lpma")  # structures that share structures/pma


def below(folder: PurePosixPath) -> set[str]:
    """The folders, besides their own, whose files the files of `folder` may include; of a family, all its folders."""
    match folder.parts:
        case ("kernels", *_):
            return set()  # the loader puts a platform's header before every program
        case ("structures",):
            return {"kernels"}
        case ("structures", name):
            return {"structures", "kernels", *(["structures/pma"] if name in PMAS else [])}
        case ("algorithms", family, *_):
            level = next(i for i, layer in enumerate(FAMILIES) if family in layer)
            lower = {f"algorithms/{name}" for layer in FAMILIES[level + 1 :] for name in layer}
            return {*lower, f"algorithms/{family}", "structures", "kernels"}
        case _:
            return {"kernels"}


def allowed(file: str, included: str) -> bool:
    """Whether `file` may include `included`, both by their paths from the package."""
    folder, target = PurePosixPath(file).parent, PurePosixPath(included).parent
    family = "/".join(target.parts[:2]) if target.parts[0] == "algorithms" else str(target)
    meets = file == "kernels/world.cuh" and str(target) == "kernels/platform"  # how ranks do, on each machine
    return target == folder or family in below(folder) or meets


def includes(text: str) -> list[str]:
    """The files that a text includes in quotes."""
    return re.findall(r'^\s*#\s*include\s*"([^"]*)"', text, re.M)


def circle(graph: dict[str, list[str]]) -> list[str] | None:
    """A path along the edges of `graph` that ends where it begins, or None."""
    done: set[str] = set()

    def search(path: list[str]) -> list[str] | None:
        for after in graph[path[-1]]:
            if after in path:
                return [*path[path.index(after) :], after]
            found = None if after in done else search([*path, after])
            if found:
                return found
        done.add(path[-1])
        return None

    return next(filter(None, (search([file]) for file in graph)), None)


@pytest.mark.parametrize("file", FILES)
def test_a_file_includes_only_what_lies_below_it(file):
    for included in includes(FILES[file]):
        assert included in FILES, "a path from the package's folder"
        assert allowed(file, included), f"{file} may include its own folder and {below(PurePosixPath(file).parent)}"
    resolved = [found[1] for found in source._INCLUDE.finditer(FILES[file])]
    assert resolved == includes(FILES[file]), "the loader resolves every include"


def test_no_circle():
    assert circle({file: includes(text) for file, text in FILES.items()}) is None


@pytest.mark.parametrize(
    ("file", "included", "may"),
    [
        ("algorithms/paths/bfs/search.cuh", "algorithms/primitives/predecessors.cuh", True),
        ("algorithms/paths/bfs/search.cuh", "algorithms/paths/near_far/lengths.cuh", True),
        ("algorithms/paths/bfs/search.cuh", "algorithms/centrality/pagerank/ranks.cuh", False),
        ("algorithms/centrality/pagerank/pull.cuh", "algorithms/paths/bfs/search.cuh", True),
        ("algorithms/centrality/pagerank/pull.cuh", "algorithms/communities/multilevel/multilevel.cuh", False),
        ("algorithms/communities/multilevel/multilevel.cuh", "algorithms/primitives/fixed_point.cuh", True),
        ("algorithms/paths/bfs/search.cuh", "structures/view.cuh", True),
        ("algorithms/paths/bfs/search.cuh", "structures/csr/view.cuh", False),
        ("algorithms/primitives/predecessors.cuh", "algorithms/paths/bfs/search.cuh", False),
        ("algorithms/primitives/predecessors.cuh", "kernels/bits.cuh", True),
        ("structures/read.cuh", "structures/csr/view.cuh", False),
        ("structures/read.cuh", "algorithms/primitives/predecessors.cuh", False),
        ("structures/csr/update.cuh", "structures/csr/view.cuh", True),
        ("structures/csr/update.cuh", "structures/gpma_plus/view.cuh", False),
        ("structures/csr/update.cuh", "structures/pma/window.cuh", False),
        ("structures/gpma_plus/window.cuh", "structures/pma/window.cuh", True),
        ("structures/pma/window.cuh", "structures/gpma_plus/window.cuh", False),
        ("sources/rmat.cuh", "kernels/search.cuh", True),
        ("sources/rmat.cuh", "structures/view.cuh", False),
        ("kernels/rows.cuh", "structures/view.cuh", False),
        ("kernels/rows.cuh", "kernels/platform/cuda.cuh", False),
        ("kernels/platform/host.h", "kernels/platform/common.cuh", True),
        ("kernels/platform/host.h", "kernels/search.cuh", False),
    ],
)
def test_the_layers(file, included, may):
    assert allowed(file, included) is may


def test_circles_are_found():
    assert circle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) is None
    assert circle({"a": ["b"], "b": ["c"], "c": ["d", "b"], "d": []}) == ["b", "c", "b"]
    assert circle({"a": ["a"]}) == ["a", "a"]
