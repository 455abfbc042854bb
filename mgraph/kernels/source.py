"""Kernel sources as text, with includes inserted and fields read from declarations.

A kernel is declared once, in C++::

    template <class View>
    struct Degrees {                          // the comment says who cooperates on what
        static constexpr int lanes = 1;       // the number of lanes that share an item
        View graph;                           // fields of 8 bytes: pointers, i64, u64, f64, or a View
        const u32* vertices;
        i64 n;
        DEVICE void operator()(Grid grid) const { ... }
    };

The launch wrapper takes the names, order and dtypes of the fields from the declaration, so that the two always agree. A
macro may choose the types of pointers::

    #if SHARE_BITS == 16
    using Share = u16;
    #elif SHARE_BITS == 32
    using Share = f32;
    #endif
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from pathlib import Path

from mgraph.kernels.constants import Constants

__all__ = ["Field", "KernelSource", "Program", "constants", "read_program"]

ROOT = Path(__file__).parents[1]  #: the package's folder, the base of includes and of `load`
DTYPES = {
    "i8": "int8", "u8": "uint8", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64",
    "f32": "float32", "f64": "float64",
}  # fmt: skip
_INCLUDE = re.compile(r'^#include "([^"]+)"[^\n]*\n', re.M)
_STRUCT = re.compile(r"^(template <class View>\s*)?struct (?:OVERLAY )?(\w+) \{(.*?)^\};", re.M | re.S)
_FIELD = re.compile(r"^    (?:const )?(\w+)(\*?) (\w+);", re.M)
_STATE = re.compile(r"^    struct State \{(.*?)^    \};", re.M | re.S)
_CHOICE = re.compile(r"^#(?:el)?if (\w+) == (\d+)\n((?:using \w+ = \w+;[^\n]*\n)+)", re.M)
_ALIAS = re.compile(r"using (\w+) = (\w+);")


def _is_kernel(body: str) -> bool:
    return "operator()(Grid" in body or "Numbers step(Grid" in body


def _state(body: str) -> tuple[str, ...]:
    """Return the names of the words in a program's `State`."""
    state = _STATE.search(body)
    return tuple(re.findall(r"(\w+) = 0", state[1])) if state else ()


@dataclass(frozen=True)
class Field:
    """Field of a kernel: a pointer to elements of a NumPy dtype, a number, or a struct.

    Numbers are "int64", "uint64" or "float64". A struct has the dtype "struct", and its fields in `inner`.
    """

    name: str
    dtype: str
    pointer: bool = False
    inner: tuple[Field, ...] = ()

    @property
    def words(self) -> int:
        """The number of 8-byte words in the field."""
        return sum(f.words for f in self.inner) if self.dtype == "struct" else 1


@dataclass(frozen=True)
class KernelSource:
    """Declaration of a kernel.

    An item takes `lanes` lanes, and a block `shared` bytes of dynamic shared memory. The blocks of a `persistent`
    kernel meet. `resident` is the number of blocks per multiprocessor to limit registers for; 0 leaves it to the
    compiler. If a kernel `draws` its items from counters, only as many blocks are launched as run at once. For a
    program of several ranks, `entry` is the driver's function, and `state` names the words of its state.
    """

    name: str
    fields: tuple[Field, ...]
    lanes: int
    template: bool
    shared: int = 0
    persistent: bool = False
    resident: int = 0
    draws: bool = False
    entry: str = ""
    state: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of all fields."""
        return 8 * sum(f.words for f in self.fields)

    def kind(self, view: str | None) -> str:
        """Return the C++ type of the struct."""
        return f"{self.name}<{view}>" if self.template else self.name


@dataclass(frozen=True)
class Program:
    """Text to compile, and the kernels in it."""

    name: str
    text: str
    kernels: tuple[KernelSource, ...]
    view: str | None


@cache
def _text(name: str) -> str:
    return (ROOT / name).read_text().replace("#pragma once\n", "")


def _inline(name: str, seen: set[str]) -> str:
    """Return a file's text with its includes inserted, each once."""
    if name in seen:
        return ""
    seen.add(name)
    return _INCLUDE.sub(lambda match: _inline(match[1], seen), _text(name))


def _fields(body: str, structs: dict[str, str], view: str | None) -> tuple[Field, ...]:
    """Return the fields that precede a struct's functions."""
    fields = []
    for kind, star, name in _FIELD.findall(re.split(r"operator\(\)|    struct State", body)[0]):
        inner = view if kind == "View" else kind
        if inner in structs and not star:
            fields.append(Field(name, "struct", inner=_inner(structs[inner])))
        elif kind in DTYPES and (star or kind in ("i64", "u64", "f64")):
            fields.append(Field(name, DTYPES[kind], bool(star)))
        else:
            raise ValueError(f"kernel field `{kind}{star} {name}` is not 8 bytes wide or of no known type")
    return tuple(fields)


def _chosen(text: str, defines: tuple[tuple[str, int | str], ...]) -> str:
    """Replace the type names that macros choose by the chosen types."""
    for constant, value, aliases in _CHOICE.findall(text):
        if dict(defines).get(constant) == int(value):
            for name, kind in _ALIAS.findall(aliases):
                text = re.sub(rf"\b{name}\*", f"{kind}*", text)
    return text


def _macros(defines: tuple[tuple[str, int | str], ...], text: str) -> str:
    """Return the definitions of the macros that `text` or another definition uses."""
    # With unused ones, a library would have several keys in the cache.
    named = set(re.findall(r"\w+", " ".join([text, *(str(value) for _, value in defines)])))
    return "".join(f"#define {name} {value}\n" for name, value in defines if name in named)


@cache
def _inner(body: str) -> tuple[Field, ...]:
    """Return the fields of a struct without inner structs. Cached, so its id is a key."""
    return _fields(body, {}, None)


@cache
def read_program(
    file: str, platform: str, defines: tuple[tuple[str, int | str], ...], view: tuple[str, str] | None
) -> Program:
    """Return the program of a kernel file for a platform.

    `view`, a file and a type, is the templates' ``View``.
    """
    # Insert the includes, and choose the types of pointers.
    seen: set[str] = set()
    text = _inline(platform, seen)
    views_text = _inline(view[0], seen) if view else ""
    body = _inline(file, seen)
    structs = {match[2]: match for match in _STRUCT.finditer(_chosen(views_text + body, defines))}
    views = {name: match[3] for name, match in structs.items() if not _is_kernel(match[3])}

    # Read each kernel's fields and constants.
    numbers = {name: value for name, value in defines if isinstance(value, int)}
    values, kernels = Constants(file, views_text + body, numbers), []
    for name, match in structs.items():
        if not _is_kernel(match[3]) or (match[1] and not view):
            continue
        if f"{name}::lanes" not in values:
            raise ValueError(f"kernel {name} in {file} does not say `static constexpr int lanes`")
        fields = _fields(match[3], views, view and view[1])
        for field in fields:
            if iskeyword(field.name):
                raise ValueError(f"kernel {name} in {file} has a field {field.name!r}, which is a keyword of Python")
        shared = values.get(f"{name}::shared", 0)
        persistent = bool(values.get(f"{name}::persistent", 0))
        resident = values.get(f"{name}::resident", 0)
        draws = bool(values.get(f"{name}::draws", 0))
        lanes = values[f"{name}::lanes"]
        entry = "drive" if "Numbers step(Grid" in match[3] else ""
        kernels.append(
            KernelSource(
                name, fields, lanes, bool(match[1]), shared, persistent, resident, draws, entry, _state(match[3])
            )
        )
    text += views_text + body
    return Program(file, _macros(defines, text) + text, tuple(kernels), view and view[1])


@cache
def constants(file: str, **defines: int) -> Constants:
    """Return the constants, enumerators and struct sizes of a kernel file.

    Includes count, and `defines` are macros. Python reads them by name, so that it always agrees with the kernels.
    Constants that depend on the platform are not available.
    """
    return Constants(file, _inline(file, set()), defines)
