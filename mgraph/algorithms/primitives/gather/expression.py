"""Compiler of a user's Python expression over an edge to C++: parsed, checked and written anew.

It keeps Python's meaning: ``a or b`` and ``a and b`` are one of their operands. A comparison is 1 or 0.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from mgraph.errors import InvalidOption

__all__ = ["Edge", "parse_edge"]

MOST = 256  #: characters of an expression
NAMES = ("value", "weight", "u", "v")
ARITHMETIC = {
    ast.Add: "({} + {})",
    ast.Sub: "({} - {})",
    ast.Mult: "({} * {})",
    ast.Div: "({} / {})",
    ast.Mod: "remainder_of({}, {})",
    ast.FloorDiv: "quotient_of({}, {})",
    ast.Pow: "MATH(pow)({}, {})",
}  #: C++ over float64, by operator
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
FUNCTIONS = {"abs": "fabs", "sqrt": "sqrt", "exp": "exp", "log": "log", "floor": "floor", "ceil": "ceil"}
EXTREMES = {"min": "lesser", "max": "greater"}
CHOICES = {ast.And: "last_if({}, {})", ast.Or: "first_if({}, {})"}  #: for operands that are numbers


@dataclass(frozen=True)
class Edge:
    """An expression over an edge.

    Parameters
    ----------
    code : str
        The expression in C++, over float64, written from the parsed tree alone. A condition, such as a comparison, is 1
        or 0.
    names : frozenset of str
        Those of value, weight, u and v that it uses.
    """

    code: str
    names: frozenset[str]


def parse_edge(text: Any) -> Edge:
    """Parse and check the expression `text`.

    Raises `InvalidOption` with the place of a fault.
    """
    # Check and parse the text.
    if not isinstance(text, str):
        raise InvalidOption(f"edge is {text!r}; it must be an expression in a string, such as 'value * weight'")
    if len(text) > MOST:
        raise InvalidOption(f"edge has {len(text)} characters; {MOST} are the limit")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        column = getattr(error, "offset", None) or 1
        raise InvalidOption(f"edge {text!r} is no expression: {error.args[0]}, at column {column}") from None

    # Write C++ from the tree.
    writer = _Writer(text.strip())
    code = writer.number(tree.body)
    return Edge(code, frozenset(writer.names))


class _Writer:
    """Writer of C++ for the nodes of a tree.

    A node becomes a number, float64, or a condition, bool, on demand.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()

    def number(self, node: ast.expr) -> str:
        """Return a node as a number: a comparison and `not` are 1 or 0, `and` and `or` one of their operands."""
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return self._constant(node)
            case ast.Name(id=name) if name in NAMES:
                self.names.add(name)
                return name
            case ast.Name(id=name):
                raise self._wrong(node, f"{name!r} is none of {', '.join(NAMES)}")
            case ast.UnaryOp(op=ast.USub()):
                return f"(-{self.number(node.operand)})"
            case ast.UnaryOp(op=ast.UAdd()):
                return self.number(node.operand)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)].format(self.number(node.left), self.number(node.right))
            case ast.BoolOp():
                *before, code = [self.number(value) for value in node.values]
                for term in reversed(before):
                    code = CHOICES[type(node.op)].format(term, code)
                return code
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return f"(f64){self.truth(node)}"
            case ast.IfExp():
                return f"({self.truth(node.test)} ? {self.number(node.body)} : {self.number(node.orelse)})"
            case ast.Call():
                return self._call(node)
        raise self._wrong(
            node, "only numbers, arithmetic, comparisons, and, or, not, if else and calls may stand there"
        )

    def truth(self, node: ast.expr) -> str:
        """Return a node as a condition.

        A number is true if it is not 0.
        """
        match node:
            case ast.Compare():
                if not all(type(op) in COMPARISONS for op in node.ops):
                    raise self._wrong(node, f"a comparison is one of {' '.join(COMPARISONS.values())}")
                terms = [self.number(term) for term in (node.left, *node.comparators)]
                pairs = zip(terms, node.ops, terms[1:], strict=False)
                return "(" + " && ".join(f"({a} {COMPARISONS[type(op)]} {b})" for a, op, b in pairs) + ")"
            case ast.BoolOp():
                joint = " && " if isinstance(node.op, ast.And) else " || "
                return "(" + joint.join(self.truth(value) for value in node.values) + ")"
            case ast.UnaryOp(op=ast.Not()):
                return f"(!{self.truth(node.operand)})"
        return f"({self.number(node)} != 0)"

    def _constant(self, node: ast.Constant) -> str:
        try:
            value = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            value = math.inf
        if math.isinf(value):
            raise self._wrong(node, "the number is past the range of float64")
        return repr(value)

    def _call(self, node: ast.Call) -> str:
        # Check the function and the number of arguments.
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS and name not in EXTREMES:
            raise self._wrong(node, f"only {', '.join((*EXTREMES, *FUNCTIONS))} may be called")
        terms = [self.number(term) for term in node.args]
        if node.keywords or not (len(terms) == 1 if name in FUNCTIONS else len(terms) > 1):
            raise self._wrong(node, f"{name} takes {'one argument' if name in FUNCTIONS else 'two arguments or more'}")

        # Extremes of several arguments are nested calls of two.
        if name in FUNCTIONS:
            return f"MATH({FUNCTIONS[name]})({terms[0]})"
        code = terms[0]
        for term in terms[1:]:
            code = f"{EXTREMES[name]}({code}, {term})"
        return code

    def _wrong(self, node: ast.expr, why: str) -> InvalidOption:
        part = ast.get_source_segment(self.text, node) or ""
        return InvalidOption(f"edge {self.text!r}: {part!r}, at column {node.col_offset + 1}: {why}")
