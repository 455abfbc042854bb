"""Kernel sources as text: includes resolved into one file, and the fields of each kernel read from its declaration.

A kernel is declared once, in C++::

    template <class View>
    struct Degrees {                          // the comment says who cooperates on what
        static constexpr int lanes = 1;       // lanes that share one item
        View graph;                           // fields of 8 bytes: pointers, i64, u64, f64, or a View
        const u32* vertices;
        i64 n;
        DEVICE void operator()(Grid grid) const { ... }
    };

What the launch wrapper must check (names, order, dtypes) is parsed from there, so that it cannot disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Field", "KernelSource", "Program", "read_program"]

HERE = Path(__file__).parent
DTYPES = {
    "i8": "int8", "u8": "uint8", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64",
    "f32": "float32", "f64": "float64",
}  # fmt: skip
_INCLUDE = re.compile(r'^#include "([^"]+)"[^\n]*\n', re.M)
_STRUCT = re.compile(r"^(template <class View>\s*)?struct (\w+) \{(.*?)^\};", re.M | re.S)
_FIELD = re.compile(r"^    (?:const )?(\w+)(\*?) (\w+);", re.M)
_LANES = re.compile(r"static constexpr int lanes = (\w+);")
_SHARED = re.compile(r"static constexpr int shared = (\w+);")


@dataclass(frozen=True)
class Field:
    """One argument of a kernel: a pointer to elements of a NumPy dtype, or a number ("int64", "uint64", "float64").

    A field that is a struct has dtype "struct" and that struct's own fields as `inner`.
    """

    name: str
    dtype: str
    pointer: bool = False
    inner: tuple[Field, ...] = ()

    @property
    def words(self) -> int:
        """How many fields of 8 bytes it is."""
        return sum(f.words for f in self.inner) if self.dtype == "struct" else 1


@dataclass(frozen=True)
class KernelSource:
    """One kernel's name, its fields in order, its lanes an item, and the bytes of its block's large shared array."""

    name: str
    fields: tuple[Field, ...]
    lanes: int
    template: bool
    shared: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of its fields."""
        return 8 * sum(f.words for f in self.fields)


@dataclass(frozen=True)
class Program:
    """One compilable text and the kernels in it."""

    name: str
    text: str
    kernels: tuple[KernelSource, ...]
    view: str | None


def _inline(name: str, seen: set[str]) -> str:
    if name in seen:
        return ""
    seen.add(name)
    text = (HERE / name).read_text().replace("#pragma once\n", "")
    return _INCLUDE.sub(lambda found: _inline(found[1], seen), text)


def _fields(body: str, structs: dict[str, str], view: str | None) -> tuple[Field, ...]:
    fields = []
    for kind, star, name in _FIELD.findall(body.split("operator()")[0]):
        inner = view if kind == "View" else kind
        if inner in structs and not star:
            fields.append(Field(name, "struct", inner=_inner(structs[inner])))
        elif kind in DTYPES and (star or kind in ("i64", "u64", "f64")):
            fields.append(Field(name, DTYPES[kind], bool(star)))
        else:
            raise ValueError(f"kernel field `{kind}{star} {name}` is not 8 bytes wide or of no known type")
    return tuple(fields)


def _number(text: str, defines: tuple[tuple[str, int], ...]) -> int:
    return int(text) if text.isdigit() else dict(defines)[text]


@cache
def _inner(body: str) -> tuple[Field, ...]:
    """The fields of a struct inside a kernel, which holds no other; one object a text, so that it can be a key."""
    return _fields(body, {}, None)


@cache
def read_program(
    file: str, platform: str, defines: tuple[tuple[str, int], ...], view: tuple[str, str] | None
) -> Program:
    """The text of a kernel file for one platform, with `view`, a file and a type, in place of templates' ``View``."""
    seen: set[str] = set()
    text = "".join(f"#define {name} {value}\n" for name, value in defines) + _inline(platform, seen)
    views_text = _inline(view[0], seen) if view else ""
    body = _inline(file, seen)
    structs = {found[2]: found for found in _STRUCT.finditer(views_text + body)}
    views = {name: found[3] for name, found in structs.items() if "operator()(Grid" not in found[3]}
    kernels = []
    for name, found in structs.items():
        if "operator()(Grid" not in found[3] or (found[1] and not view):
            continue
        lanes = _LANES.search(found[3])
        if lanes is None:
            raise ValueError(f"kernel {name} in {file} does not say `static constexpr int lanes`")
        shared = _SHARED.search(found[3])
        count, room = (_number(constant[1], defines) if constant else 0 for constant in (lanes, shared))
        fields = _fields(found[3], views, view and view[1])
        kernels.append(KernelSource(name, fields, count, bool(found[1]), room))
    return Program(file, text + views_text + body, tuple(kernels), view and view[1])
