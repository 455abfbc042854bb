"""Parser of named integers in a kernel source: constants, enumerators, sizes of structs.

    constexpr i64 part_slots = 4096, part_leaves = part_slots / LEAF;    ["part_slots"]
    enum Status { updates, misses, status_words };                       ["misses"]  .enums["Status"]
    struct Merge { static constexpr int few = 8; ... };                  ["Merge::few"]
    struct Window { u32 leaf, leaves; };                                 .size("Window")

Expressions may have integers, names, macros, operators, casts, ``sizeof`` and templates over integers. They are
evaluated lazily: an expression that depends on the platform, or on an undefined macro, fails only when it is looked up.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

__all__ = ["Constants"]

BITS = {"bool": 1, "int": 32, **{f"{sign}{bits}": bits for sign in "iu" for bits in (8, 16, 32, 64)}}
SIZES = {name: max(bits // 8, 1) for name, bits in BITS.items()} | {"f32": 4, "f64": 8}
LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (  # one dict per precedence, lowest first
    {"||": lambda a, b: a != 0 or b != 0},
    {"&&": lambda a, b: a != 0 and b != 0},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)
TRUTH = {"false": 0, "true": 1}
SUM = 8  # precedence level of template arguments, whose ">" ends them
TOKEN = re.compile(r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b|(\w+|::|<<|>>|[<>=!]=|&&|\|\||[^\s\w]))")
MACRO = re.compile(r"^#define (\w+) ([^\n]+)$", re.M)
STRUCT = re.compile(
    r"^(?:template <([^>]*)>\s*)?struct (?:OVERLAY )?(?:alignas\((\d+)\) )?(\w+)( : [^{;\n]*)? "
    r"\{(?:([^\n]*)\};|[^\n]*\n(.*?)^\};)",
    re.M | re.S,
)
NAMESPACE = re.compile(r"^namespace \w+ \{.*?^\}  // namespace", re.M | re.S)  # private to its file
NEXT_NAME = re.compile(r",\s*(?=\w+ = )")
CONSTANT = r"^{}(?:static )?constexpr (\w+) (\w+ = [^;{{}}]*);"
ENUM = r"^{}enum (\w+)(?: : \w+)? \{{([^}}]*)\}};"
MEMBER = re.compile(r"(?:const )?(\w+)(\*?) (\w+(?:\[\d+\])?(?: = [^,]*)?(?:, \w+(?:\[\d+\])?(?: = [^,]*)?)*)")
LENGTH = re.compile(r"\[(\d+)\]")
NO_MEMBER = re.compile(r"static |using |enum |struct |template |friend |DEVICE |#|\}")


class _Scope:
    """Declarations inside a struct, or outside of structs, parsed lazily."""

    def __init__(
        self, body: str, indent: str, parameters: tuple[str, ...] = (), alignment: int = 1, derived: bool = False
    ) -> None:
        self.body, self.indent, self.parameters = body, indent, parameters  # parameters of its template
        self.alignment, self.derived = alignment, derived

    @cached_property
    def _enumerators(self) -> dict[str, list[tuple[str, str]]]:
        """Names and expressions of each enum's members; without an expression, the last member + 1."""
        members: dict[str, list[tuple[str, str]]] = {}
        for kind, listed in re.findall(ENUM.format(self.indent), self.body, re.M):
            members[kind] = []
            for entry in filter(str.strip, listed.split(",")):
                name, _, expression = (part.strip() for part in entry.partition("="))
                after = f"{members[kind][-1][0]} + 1" if members[kind] else "0"
                members[kind].append((name, expression or after))
        return members

    @cached_property
    def enums(self) -> Mapping[str, tuple[str, ...]]:
        """Enumerators of each enum."""
        return MappingProxyType({kind: tuple(name for name, _ in all) for kind, all in self._enumerators.items()})

    @cached_property
    def constants(self) -> dict[str, tuple[str, str]]:
        """Types and expressions by name; the expression is empty if conditions declare it twice."""
        # Enumerators are integers of 64 bits here; a declaration may list several constants.
        constants: dict[str, tuple[str, str]] = {}
        stated = [("i64", *member) for all in self._enumerators.values() for member in all]
        for kind, listed in re.findall(CONSTANT.format(self.indent), self.body, re.M):
            stated += [(kind, *entry.split("=", 1)) for entry in NEXT_NAME.split(listed)]
        for kind, name, expression in stated:
            constants[name.strip()] = kind, "" if name.strip() in constants else expression
        return constants


class Constants(Mapping[str, int]):
    """Integers of a text by name; members of a struct as ``Struct::name``.

    Parameters
    ----------
    file : str
        The name of the text in error messages.
    text : str
    defines : mapping
        Macros for the compilation; they override the text's own.

    Raises
    ------
    KeyError
        On the lookup of an undeclared name.
    ValueError
        On the lookup of a constant whose expression has more than the module docstring lists.
    """

    def __init__(self, file: str, text: str, defines: Mapping[str, int]) -> None:
        # Drop comments, and namespaces, which are private to their file.
        text = re.sub(r"//[^\n]*", "", NAMESPACE.sub("", text))
        self.file = file
        self._macros = dict(MACRO.findall(text)) | {name: str(value) for name, value in defines.items()}
        self._outside = _Scope(text, "")

    @cached_property
    def _structs(self) -> dict[str, _Scope]:
        """Structs by name, all in the form of several lines."""
        scopes = {}
        for template, alignment, name, base, line, lines in STRUCT.findall(self._outside.body):
            parameters = tuple(part.split()[-1] for part in template.split(",") if part.split())
            body = lines or "".join(f"    {member.strip()};\n" for member in line.split(";") if member.strip())
            scopes[name] = _Scope(body, "    ", parameters, int(alignment or 1), bool(base))
        return scopes

    @property
    def enums(self) -> Mapping[str, tuple[str, ...]]:
        """Enumerators of each enum outside of structs, in order."""
        return self._outside.enums

    def __contains__(self, name: object) -> bool:
        struct, _, member = str(name).rpartition("::")
        scope = self._structs.get(struct) if struct else self._outside
        return scope is not None and member in scope.constants

    def __getitem__(self, name: str) -> int:
        if name not in self:
            raise KeyError(f"{self.file} has no constant {name!r}, only {', '.join(self) or 'none'}")
        try:
            return _Expression(self, name, self._outside, {}).value()
        except ValueError as error:
            raise ValueError(f"cannot read {name} of {self.file}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        yield from self._outside.constants
        for struct, scope in self._structs.items():
            yield from (f"{struct}::{name}" for name in scope.constants)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def size(self, struct: str) -> int:
        """Return the bytes of a struct. Raises KeyError or ValueError as for a constant."""
        if struct not in self._structs:
            raise KeyError(f"{self.file} has no struct {struct!r}, only {', '.join(self._structs) or 'none'}")
        try:
            return self.layout(struct)[0]
        except ValueError as error:
            raise ValueError(f"cannot read {struct} of {self.file}: {error}") from None

    def layout(self, kind: str) -> tuple[int, int]:
        """Return the size and the alignment of a type in bytes."""
        if kind in SIZES:
            return SIZES[kind], SIZES[kind]
        scope = self._structs.get(kind)
        if scope is None or scope.derived or scope.parameters:
            raise ValueError(f"the size of {kind} is not known")
        # Place the members in order, each at the next multiple of its alignment.
        end, alignment = 0, scope.alignment
        for line in re.findall(r"^    (\S.*);[ ]*$", scope.body, re.M):
            if NO_MEMBER.match(line):
                continue
            match = MEMBER.fullmatch(line)
            if match is None:
                raise ValueError(f"its member `{line}` is not understood")
            size, aligned = (8, 8) if match[2] else self.layout(match[1])
            for name in match[3].split(","):
                length = LENGTH.search(name)
                end = -(-end // aligned) * aligned + size * (int(length[1]) if length else 1)
                alignment = max(alignment, aligned)
        return max(-(-end // alignment) * alignment, 1), alignment

    def find(self, name: str, scope: _Scope, given: Mapping[str, int]) -> int:
        """Return the value of a name in a scope; `given` has the template's arguments."""
        # Template arguments first, then the scope's constants, those outside, and macros.
        values = {**TRUTH, **given}
        if name in values:
            return values[name]
        for where in () if name in scope.parameters else (scope, self._outside):
            if name in where.constants:
                kind, expression = where.constants[name]
                if kind not in BITS:
                    raise ValueError(f"{name} is {kind}, no integer")
                return _cast(kind, _Expression(self, expression, where, values if where is scope else {}).value())
        if name in self._macros:
            return _Expression(self, self._macros[name], self._outside, {}).value()
        raise ValueError(f"{name} is not known")

    def of_struct(self, struct: str) -> _Scope | None:
        """Return the declarations of a struct, or None if it does not exist."""
        return self._structs.get(struct)


def _cast(kind: str, value: int) -> int:
    """Convert a value to a C++ integer type; signed overflow is an error."""
    if kind == "bool":
        return int(value != 0)
    if kind.startswith("u"):
        return value & (1 << BITS[kind]) - 1
    if not -(1 << BITS[kind] - 1) <= value < 1 << BITS[kind] - 1:
        raise ValueError(f"{value} is no {kind}")
    return value


class _Expression:
    """Parser of a C++ integer expression, by recursive descent."""

    def __init__(self, constants: Constants, text: str, scope: _Scope, given: Mapping[str, int]) -> None:
        self.constants, self.text, self.scope, self.given = constants, text.strip(), scope, given
        self.tokens = [number or sign for number, sign in TOKEN.findall(self.text)]
        self.at = 0

    def value(self) -> int:
        result = self._choice()
        if self.at < len(self.tokens):
            raise self._unknown()
        return result

    def _unknown(self) -> ValueError:
        return ValueError(f"`{self.text}` is more than simple" if self.text else "it is stated twice")

    def _next(self, *ahead: str) -> str:
        """Take the next token; if it is not one of `ahead`, take nothing and return ""."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if ahead and token not in ahead:
            return ""
        self.at += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._next(token):
            raise self._unknown()

    def _choice(self) -> int:
        """Parse ``a ? b : c`` or a binary expression."""
        condition = self._level(0)
        if not self._next("?"):
            return condition
        first = self._choice()
        self._expect(":")
        second = self._choice()
        return first if condition else second

    def _level(self, level: int) -> int:
        """Parse operators of one precedence and above."""
        if level == len(LEVELS):
            return self._unary()
        result = self._level(level + 1)
        while sign := self._next(*LEVELS[level]):
            other = self._level(level + 1)
            if sign in ("/", "%", ">>") and (result < 0 or other < 0):
                raise ValueError(f"`{self.text}` divides or shifts what is below 0")
            result = int(LEVELS[level][sign](result, other))
        return result

    def _unary(self) -> int:
        match self._next():
            case "-":
                return -self._unary()
            case "+":
                return self._unary()
            case "~":
                return ~self._unary()
            case "!":
                return int(not self._unary())
            case "(":
                return self._parenthesis()
            case "sizeof":
                self._expect("(")
                size, _ = self.constants.layout(self._next())
                self._expect(")")
                return size
            case token:
                return self._primary(token)

    def _parenthesis(self) -> int:
        kind = self._next(*SIZES)
        if not kind:
            result = self._choice()
            self._expect(")")
            return result
        self._expect(")")
        if kind not in BITS:
            raise ValueError(f"`{self.text}` is no integer")
        return _cast(kind, self._unary())

    def _primary(self, token: str) -> int:
        if token[:1].isdigit():
            return int(token, 0)
        if self.tokens[self.at : self.at + 1] in (["::"], ["<"]):
            struct = self.constants.of_struct(token)
            if struct is not None:
                return self._member(token, struct)
        if not token.isidentifier():
            raise self._unknown()
        return self.constants.find(token, self.scope, self.given)

    def _member(self, name: str, struct: _Scope) -> int:
        """Parse ``::name`` or ``<1, 2>::name`` after a struct's name."""
        arguments: list[int] = []
        # Template arguments end at the level of comparisons.
        if self._next("<"):
            arguments.append(self._level(SUM))
            while self._next(","):
                arguments.append(self._level(SUM))
            self._expect(">")
        self._expect("::")
        member = self._next()
        if member not in struct.constants:
            raise ValueError(f"{name}::{member} is not known")
        return self.constants.find(member, struct, dict(zip(struct.parameters, arguments, strict=False)))
