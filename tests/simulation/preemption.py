"""Preemption points: calls between the lines of the product's code, by which a fiber gives way there.

`sys.settrace` would call at the same places, but halves the speed of the interpreter. So files are compiled again with
the calls in them, and their functions have that code while a plan asks for it.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

__all__ = ["POINT", "Preemption", "compiled", "functions_of"]

#: expressions that are parts of others, and have no value of their own or a fixed place
PARTS = (ast.Starred, ast.Slice, ast.JoinedStr, ast.FormattedValue)
POINT = "__point__"  #: the name of the call, which returns its argument


class Preemption:
    """The functions of the modules that are loaded, and their code with points.

    Made before a test replaces one of the functions.
    """

    def __init__(self, part: str) -> None:
        self.functions: dict[str, list[FunctionType]] = defaultdict(list)
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None) or ""
            if part in path:
                found = {id(function): function for function in _functions(vars(module), path)}
                self.functions[path] += found.values()
        self._codes: dict[str, list[tuple[FunctionType, CodeType, CodeType]]] = {}

    @contextmanager
    def between_lines(self, parts: tuple[str, ...], point: Callable[..., Any]) -> Iterator[None]:
        """Return a block in which the files whose paths have one of these parts call `point` between their lines."""
        paths = [path for path in self.functions if any(part in path for part in parts)]
        codes = [codes for path in paths for codes in self.codes(path)]
        for function, _, code in codes:
            function.__code__ = code
            function.__globals__[POINT] = point
        try:
            yield
        finally:
            for function, code, _ in codes:
                function.__code__ = code

    def codes(self, path: str) -> list[tuple[FunctionType, CodeType, CodeType]]:
        """Return the functions of a file with their code, without and with points."""
        if path not in self._codes:
            codes = {_place(code): code for code in functions_of(compiled(path))}
            self._codes[path] = [
                (function, function.__code__, codes[_place(function.__code__)]) for function in self.functions[path]
            ]
        return self._codes[path]


def compiled(path: str) -> CodeType:
    """Compile a file with points in its functions."""
    tree = _Points().visit(ast.parse(Path(path).read_text(), path))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Return the codes of the functions of a module and its classes."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 2:  # CO_NEWLOCALS: of a function, not of a class
                yield inner
            else:
                yield from functions_of(inner)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _functions(names: Any, path: str) -> Iterator[FunctionType]:
    """Return the functions of a module or a class, those below decorators too."""
    module = names.get("__module__", names.get("__name__"))
    for value in list(names.values()):
        if isinstance(value, type):
            if value.__module__ == module:
                yield from _functions(vars(value), path)
            continue
        for part in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "__wrapped__"))):
            if isinstance(part, FunctionType) and part.__code__.co_filename == path:
                yield part


def _call(*arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(POINT, ast.Load()), [*arguments], [])


def _after(expression: ast.expr) -> ast.expr:
    """Return a point, then the value of an expression."""
    match expression:
        case ast.BoolOp(values=[ast.Call(func=ast.Name(id=name)), _]) if name == POINT:
            return expression
    return ast.BoolOp(ast.Or(), [_call(), expression])


class _Points(ast.NodeTransformer):
    """Puts points where a tracer would be called: at each line, also those of an expression, and in each iteration."""

    _line = 0  #: of what is around
    _holds = False  #: within a block of `with`
    _counts = False  #: within a loop of `for`

    def visit(self, node: Any) -> Any:
        """Put points into a node, and before it if it is on a line of its own."""
        if not isinstance(node, ast.expr) or isinstance(
            node, ast.Starred | ast.Slice | ast.JoinedStr | ast.FormattedValue
        ):
            return super().visit(node)
        around, self._line = self._line, node.lineno
        own = node.lineno != around and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        node = super().visit(node)
        self._line = around
        return _after(node) if own else node

    def visit_FunctionDef(self, node: Any) -> Any:
        """Put points into the body, behind a docstring."""
        holds, self._holds = self._holds, False
        documented = ast.get_docstring(node) is not None
        node.body[documented:] = self._block(node.body[documented:])
        self._holds = holds
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Put points into the methods."""
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
        return node

    def visit_Module(self, node: ast.Module) -> Any:
        """Put points into the functions, not between them."""
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
        return node

    def _block(self, statements: list[Any]) -> list[Any]:
        block = []
        for statement in statements:
            self._line = statement.lineno
            if not isinstance(statement, ast.While | ast.Global | ast.Nonlocal):
                block.append(ast.copy_location(ast.Expr(_call()), statement))
            visited = self.visit(statement)
            block += visited if isinstance(visited, list) else [visited]
        return block

    def generic_visit(self, node: ast.AST) -> Any:
        """Put points into the blocks and the expressions of a node."""
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                setattr(node, name, self._block(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(part) if isinstance(part, ast.AST) else part for part in value])
            elif isinstance(value, ast.AST) and name != "annotation":
                setattr(node, name, self.visit(value))
        return node

    def visit_For(self, node: Any) -> Any:
        """Come back to the line of the loop."""
        counts, self._counts = self._counts, True
        self.generic_visit(node)
        self._counts = counts
        node.body.append(ast.copy_location(ast.Expr(_call()), node))
        return node

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> Any:
        """Come back to the condition."""
        counts, self._counts = self._counts, False
        self.generic_visit(node)
        self._counts = counts
        node.test = _after(node.test)
        return node

    def visit_Continue(self, node: ast.Continue) -> Any:
        """Come back to the line of the loop."""
        return [ast.copy_location(ast.Expr(_call()), node), node] if self._counts else node

    def visit_With(self, node: Any) -> Any:
        """Come back to the line of the block before its end."""
        holds, self._holds = self._holds, True
        self.generic_visit(node)
        self._holds = holds
        node.body.append(ast.copy_location(ast.Expr(_call()), node))
        return node

    visit_AsyncWith = visit_With

    def visit_Return(self, node: ast.Return) -> Any:
        """Put a point before the end of a block of `with`, too."""
        self.generic_visit(node)
        if self._holds:
            node.value = _call(*[node.value] * (node.value is not None))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        """Put a point before the comparison of an error."""
        self._line = node.lineno
        self.generic_visit(node)
        node.type = node.type and _after(node.type)
        return node

    def visit_match_case(self, node: ast.match_case) -> Any:
        """Leave the pattern as it is."""
        node.body = self._block(node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Put a point before the value."""
        node.body = _after(self.visit(node.body))
        return node

    def visit_ListComp(self, node: Any) -> Any:
        """Put a point before the first iteration, and into each."""
        self.generic_visit(node)
        node.generators[0].iter = _after(node.generators[0].iter)
        if node.generators[-1].ifs:
            node.generators[-1].ifs[0] = _after(node.generators[-1].ifs[0])
        else:
            name = "value" if isinstance(node, ast.DictComp) else "elt"
            setattr(node, name, _after(getattr(node, name)))
        return node

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp
