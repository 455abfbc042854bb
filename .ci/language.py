#!/usr/bin/env python3
"""Measure the language of docstrings, comments and local names, against the limits in pyproject.toml.

    .ci/language.py [--list] [PACKAGE ...]

The limits are in ``[tool.language]``, a table per package; without arguments all of them are checked. Exits with 1 if a
measure is past its limit. ``--list`` also prints each docstring that counts against a package.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high

ROOT = Path(__file__).resolve().parents[1]
OPENERS = frozenset(["what", "how", "one", "as", "see", "whether", "where", "those", "that", "so"])
ARTICLES = frozenset(["the", "a", "an"])
COUNTED = ("what", "one", "that", "there")  #: words whose frequency is measured
VAGUE = frozenset(["found", "one", "given", "there", "made", "held", "known", "told"])
PROPERTIES = ("property", "cached_property")
COMMENT = re.compile(r"\s*# (?!--)")  #: a full-line comment; not "#:" before a constant, and not a banner

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


@dataclass
class Measures:
    """Counts over the files of a package."""

    paragraphs: list[list[str]] = field(default_factory=list)  #: words of each docstring's first paragraph
    functions: int = 0  #: functions with a docstring
    openers: list[str] = field(default_factory=list)  #: places of docstrings that begin with one of `OPENERS`
    articles: list[str] = field(default_factory=list)  #: places that begin with an article, properties aside
    lines: int = 0
    comments: int = 0
    vague: list[str] = field(default_factory=list)  #: places that assign one of `VAGUE`

    def add(self, path: Path) -> None:
        """Count a file."""
        text = path.read_text()
        self.lines += text.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments += sum(token.type == tokenize.COMMENT and bool(COMMENT.match(token.line)) for token in tokens)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
                self._add_docstring(f"{path}:{getattr(node, 'lineno', 1)}", node, docstring)
            self.vague += [f"{path}:{name.lineno}: {name.id}" for name in _assigned(node) if name.id in VAGUE]

    def _add_docstring(self, place: str, node: Documented, docstring: str) -> None:
        summary = " ".join(docstring.split("\n\n")[0].split())
        words = re.findall(r"[A-Za-z']+", summary.lower())
        self.paragraphs.append(words)
        if isinstance(node, Function) and words:
            self.functions += 1
            if words[0] in OPENERS:
                self.openers.append(f"{place}: {summary}")
            if words[0] in ARTICLES and not _is_property(node):
                self.articles.append(f"{place}: {summary}")

    def values(self) -> dict[str, float]:
        """Return each measure by its name in pyproject.toml."""
        total = sum(map(len, self.paragraphs)) or 1
        frequencies = {word: 1000 * sum(p.count(word) for p in self.paragraphs) / total for word in COUNTED}
        return {
            "openers": 100 * len(self.openers) / max(self.functions, 1),
            "articles": 100 * len(self.articles) / max(self.functions, 1),
            **frequencies,
            "median-words": median_high(map(len, self.paragraphs)) if self.paragraphs else 0,
            "comments": 100 * self.comments / max(self.lines, 1),
            "vague-names": len(self.vague),
        }


def _assigned(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the names that an assignment binds."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name for name in ast.walk(target) if isinstance(name, ast.Name))


def _is_property(node: Function) -> bool:
    names = (getattr(decorator, "id", getattr(decorator, "attr", "")) for decorator in node.decorator_list)
    return any(name in PROPERTIES for name in names)


def measure(folder: Path) -> Measures:
    """Count all Python files under a folder."""
    measures = Measures()
    for path in sorted(folder.rglob("*.py")):
        measures.add(path)
    return measures


def exceeded(values: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a message per measure past its limit: a minimum for comments, a maximum for the others."""
    if values.keys() != limits.keys():
        raise SystemExit(f"[tool.language] needs limits for {', '.join(values)}, not for {', '.join(limits)}")
    messages = []
    for name, value in values.items():
        is_minimum = name == "comments"
        if value < limits[name] if is_minimum else value > limits[name]:
            messages.append(f"{name} is {value:.1f}, at {'least' if is_minimum else 'most'} {limits[name]:g}")
    return messages


def main() -> int:
    """Check the packages named on the command line, or all packages with limits."""
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["language"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"{', '.join(limits)}; by default all")
    parser.add_argument("--list", action="store_true", help="print the places that count against a package")
    arguments = parser.parse_args()
    if unknown := set(arguments.packages) - limits.keys():
        parser.error(f"[tool.language] has no limits for {', '.join(sorted(unknown))}, only for {', '.join(limits)}")

    failed = False
    for package in arguments.packages or limits:
        measures = measure(ROOT / package)
        values = measures.values()
        messages = exceeded(values, limits[package])
        if arguments.list:
            print(*measures.openers, *measures.articles, *measures.vague, sep="\n")
        print(f"{package}: " + ", ".join(f"{name} {value:.1f}" for name, value in values.items()))
        for message in messages:
            print(f"{package}: {message}", file=sys.stderr)
        failed |= bool(messages)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
