"""`DynamicGraph` is a facade: it documents and hands on, and has no mechanism of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import mgraph.graph

MOST_LINES, MOST_STATEMENTS = 200, 8

TEXT = Path(mgraph.graph.__file__).read_text()
(FACADE,) = (node for node in ast.parse(TEXT).body if isinstance(node, ast.ClassDef))


def code_lines(node: ast.ClassDef) -> int:
    """Lines of the class that are neither blank, nor comments, nor in docstrings."""
    inside = [node, *(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef))]
    strings = [n.body[0] for n in inside if ast.get_docstring(n) is not None]
    prose = {line for s in strings for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    lines = TEXT.splitlines()
    numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return sum(n not in prose and lines[n - 1].strip()[:1] not in ("", "#") for n in numbers)


def statements(function: ast.FunctionDef) -> int:
    """Statements of a method, those of its blocks too; its docstring is none."""
    found = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
    return found - (ast.get_docstring(function) is not None)


def test_the_facade_is_short():
    assert code_lines(FACADE) <= MOST_LINES


def test_no_method_does_much():
    methods = {n.name: statements(n) for n in FACADE.body if isinstance(n, ast.FunctionDef)}
    assert len(methods) > 10
    assert {name: n for name, n in methods.items() if n > MOST_STATEMENTS} == {}


def test_public_methods_say_what_they_do():
    for name in dir(mgraph.graph.DynamicGraph):
        if not name.startswith("_"):
            assert len(getattr(mgraph.graph.DynamicGraph, name).__doc__ or "") > 20, name
