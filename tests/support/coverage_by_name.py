"""Find the tests that cover a module: by folder and name, else by imports, else all of its folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
IMPORT = re.compile(r"^[ ]*(?:from [\w.]+ )?import (?:\([^)]*\)|[^\n(]+)$", re.MULTILINE)


def files_that_cover(path: str) -> list[str]:
    """Return the test files that cover the module, kernel or folder at `path`, relative to the root."""
    module = (ROOT / path).resolve()
    if not module.exists() or ROOT not in module.parents:
        raise pytest.UsageError(f"--for {path}: there is no such file under {ROOT}")
    files = named(module) or sorted({*named(module.parent), *importing(module)}) or around(module)
    if not files:
        raise pytest.UsageError(f"--for {path}: no test has its name or its folder, and none imports it")
    return [str(file.relative_to(ROOT)) for file in files]


def named(module: Path) -> list[Path]:
    """Return the tests of mgraph/a/b.py: tests/a/test_b.py, tests/a/test_b_*.py and tests/test_a_b.py."""
    if module.parent == ROOT:
        return []
    folder, name = mirror(module.parent), module.stem
    patterns = {folder: (f"test_{name}.py", f"test_{name}_*.py"), folder.parent: (f"test_{folder.name}_{name}.py",)}
    return sorted({file for where in patterns for pattern in patterns[where] for file in where.glob(pattern)})


def mirror(folder: Path) -> Path:
    """Return the folder of tests of a folder of code; mgraph's folders stand in tests/ itself."""
    top, *rest = folder.relative_to(ROOT).parts
    return TESTS.joinpath(*(rest if top == "mgraph" else (top, *rest)))


def importing(module: Path) -> list[Path]:
    """Return the tests that import `module`, by themselves or through a module of tests/support."""
    if module.suffix != ".py":
        return []
    name = dotted(module)
    helpers, more = set[str](), {name}
    while more:  # of support too: a helper that imports a helper
        more = {file.stem for file in SUPPORT.glob("*.py") if file.stem not in helpers and more & imports(file)}
        helpers |= more
    wanted = helpers | {name}
    return sorted(file for file in TESTS.rglob("test_*.py") if wanted & imports(file))


def around(module: Path) -> list[Path]:
    """Return the tests of the innermost folder of `module` that has some; those of all mgraph are nobody's."""
    folders = (mirror(folder) for folder in (module / "any").parents if ROOT in folder.parents)
    return next((files for folder in folders if folder != TESTS and (files := sorted(folder.rglob("test_*.py")))), [])


def dotted(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(file: Path) -> frozenset[str]:
    """Return the modules that `file` imports; a name that a package hands on counts as its own module's."""
    return frozenset(name for name, _ in imported(file))


def imported(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of all that `file` imports."""
    statements = (dedent(statement) for statement in IMPORT.findall(file.read_text()))  # parsed alone: ten times faster
    for node in ast.parse("\n".join(statements)).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from origin(node.module, alias.name)


def origin(package: str, name: str) -> list[tuple[str, str]]:
    """Return the modules in which ``from package import name`` may find `name`, through packages that hand it on."""
    where = ROOT.joinpath(*package.split("."))
    if (where / f"{name}.py").exists() or (where / name / "__init__.py").exists():
        return [(f"{package}.{name}", "")]
    if not (init := where / "__init__.py").exists():
        return [(package, name)]
    return [(package, name), *(source for source in handed_on(init) if source[1] == name)]


@cache
def handed_on(init: Path) -> frozenset[tuple[str, str]]:
    return frozenset(imported(init))
