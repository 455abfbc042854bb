"""Names of a table's columns: the ends, weights, operations and times, alike in all calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.facade import hint, warn
from mgraph.tables.arrays import is_missing

__all__ = ["COLUMNS", "DEFAULTS", "Names", "from_mapping", "label", "warn_unused"]

COLUMNS = ("src", "dst", "weight", "op", "time")  #: the columns of a batch, in order
#: what the columns of a table are called where the user names none
DEFAULTS = {
    "src": ("source", "src"),
    "dst": ("target", "dst"),
    "weight": ("weight",),
    "op": ("op",),
    "time": ("time",),
}
NO_WEIGHT = "no weight"  #: among unused columns: those of a weighted graph's table may have its weights
ARGUMENTS = {"src": "source", "dst": "target"}  #: the arguments of calls, where they are not called as the column


@dataclass(frozen=True)
class Names:
    """Names of the columns that a call reads.

    Parameters
    ----------
    source, target, weight, op, time : str or int, optional
        The names that the user gave. Without one a column has its default name.
    reads : tuple of str
        Which of "weight", "op" and "time" the call reads where the user did not name them.
    quiet : tuple of str
        Which of these the user does not want, so that no warning is needed.
    """

    source: Any = None
    target: Any = None
    weight: Any = None
    op: Any = None
    time: Any = None
    reads: tuple[str, ...] = ("weight", "op", "time")
    quiet: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in COLUMNS:
            name = self._argument(column)
            usable = isinstance(name, Hashable) and not isinstance(name, bool | tuple | float) and not is_missing(name)
            if name is not None and not usable:
                what = ARGUMENTS.get(column, column)
                raise InvalidOption(f"{what} is a {type(name).__name__}; of a table it is the name of a column")

    def _argument(self, column: str) -> Any:
        return getattr(self, ARGUMENTS.get(column, column))

    @property
    def named(self) -> list[Any]:
        """Names from the user."""
        return [name for column in COLUMNS if (name := self._argument(column)) is not None]

    def find(self, columns: Iterable[Any], what: str) -> tuple[dict[str, Any], list[str]]:
        """Return the name of each batch column in the table, and the unused columns, `NO_WEIGHT` among them.

        Parameters
        ----------
        columns : iterable
            The names of the table's columns.
        what : str
            The name of the table in messages.

        Raises
        ------
        InvalidBatch
            A column is missing, exists twice, or is wanted twice. The message lists the columns.
        """
        # Take the names from the user, else the default that the table has.
        listed, names = list(columns), dict[str, Any]()
        # False equals 0, and a missing value cannot be compared.
        available = [name for name in listed if not (isinstance(name, bool | np.bool_) or is_missing(name))]
        for column, defaults in DEFAULTS.items():
            name = self._argument(column)
            if name is None and (column in ARGUMENTS or column in self.reads):
                matches = [default for default in defaults if default in available]
                if len(matches) > 1:
                    what_for = f"{ARGUMENTS[column]}= says which"
                    raise InvalidBatch(f"{what} has the columns {matches[0]!r} and {matches[1]!r}; {what_for}")
                name = matches[0] if matches else defaults[0] if column in ARGUMENTS else None
            if name is not None:
                names[column] = name
        # Each name must be a single column of the table, and be used once.
        for name in names.values():
            if available.count(name) != 1:
                count = "no column" if name not in available else f"{available.count(name)} columns"
                others = ", ".join(map(repr, listed)) or "none"
                advice = self._advice(name, available, what) if name not in available else ""
                raise InvalidBatch(f"{what} has {count} {name!r}; its columns are {others}{advice}")
            if list(names.values()).count(name) > 1:
                raise InvalidBatch(
                    f"column {name!r} is wanted twice; source, target, weight, op and time are columns of their own"
                )
        # Columns of the other default names are worth a warning.
        unused = [
            name
            for name in COLUMNS[2:]
            if name in available and name not in names.values() and name not in names and name not in self.quiet
        ]
        unread = set(available) - set(names.values()) - set(COLUMNS)
        if "weight" in self.reads and "weight" not in (*names, *self.quiet) and unread:
            unused.append(NO_WEIGHT)
        return names, unused

    def _advice(self, name: Any, available: list[Any], what: str) -> str:
        """Return the end of a message about a missing column: how to name another."""
        # The user's own name may be misspelt; else the line of names of a file may be none.
        texts = [column for column in available if isinstance(column, str)]
        if name in self.named:
            return hint(name, texts) if isinstance(name, str) else ""
        if what == "the file":
            if len(texts) == 1 and (mark := next((mark for mark in ";\t|" if mark in texts[0]), None)):
                return f"; from_csv(path, delimiter={mark!r}) reads columns between {mark!r}"
            if all(text.strip().isdigit() for text in texts):
                return "; if its first line is an edge, read(path, source=0, target=1) counts columns"
        if any(isinstance(column, tuple) for column in available):
            return "; columns of several levels have no name: frame.droplevel(0, axis=1) takes the first level away"
        example = ", as in source={!r}, target={!r}".format(*available) if len(available) > 1 else ""
        return f"; the ends are 'source' and 'target', or 'src' and 'dst': source= and target= name others{example}"


def from_mapping(columns: Any, names: Names) -> Names:
    """Return the names of the deprecated argument `columns`; `names` if it is None.

    Raises
    ------
    InvalidOption
        It does not map src and dst, or maps what no batch has; or columns are named twice.
    """
    if columns is None:
        return names
    if not isinstance(columns, Mapping) or not {"src", "dst"} <= set(columns) <= set(COLUMNS):
        raise InvalidOption(
            f"columns is {columns!r}; it maps src and dst, and optionally weight, op and time, to names of columns"
        )
    if names.named:
        raise InvalidOption(f"columns is {columns!r}, and columns are named by source, target, weight, op or time, too")
    warn("columns= is deprecated; use source=, target=, weight=, op= and time=", DeprecationWarning)
    arguments = {ARGUMENTS.get(str(column), str(column)): name for column, name in columns.items()}
    return Names(**arguments, reads=names.reads, quiet=names.quiet)


def label(name: Any) -> str:
    """Return the name of a table's column in messages."""
    return f"column {name!r}"


def warn_unused(unused: Iterable[str], what: str = "the table", noun: str = "column") -> None:
    """Warn of unused columns with names like "weight" or "time", which may belong to the edges, and of `NO_WEIGHT`."""
    for name in unused:
        if name == NO_WEIGHT:
            warn(f"{what} has no {noun} 'weight', and so its edges have the weight 1; weight= names another {noun}")
            continue
        why = {
            "weight": f"weights are read where weight= names the {noun} or the graph is weighted",
            "op": "operations are read by update, ingest, stream and follow",
            "time": f"times are read where time= names the {noun} or the graph has times",
        }[name]
        warn(f"{noun} {name!r} of {what} was not used: {why}")
