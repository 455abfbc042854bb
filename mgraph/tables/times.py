"""Convert times of edges between users' dtypes and the int64 of a graph."""

from __future__ import annotations

import datetime
import operator
import re
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.tables.arrays import as_column, cell, is_missing, is_one, refuse_missing, shown, written

__all__ = [
    "INTEGERS", "LEAST", "MOST", "as_instant", "as_shown", "as_span", "as_stamps", "as_times", "as_window",
    "check_times",
]  # fmt: skip

LEAST, MOST = -(2**63) + 1, 2**63 - 1  #: range of times; -2**63 is NaT
INTEGERS = "int64"
#: units of spans in words, without the plural's s
_UNITS = {
    **dict.fromkeys(("W", "w", "week"), "W"),
    **dict.fromkeys(("D", "d", "day"), "D"),
    **dict.fromkeys(("H", "h", "hr", "hour"), "h"),
    **dict.fromkeys(("m", "min", "T", "minute"), "m"),
    **dict.fromkeys(("s", "S", "sec", "second"), "s"),
    **dict.fromkeys(("ms", "L", "milli", "millisecond"), "ms"),
    **dict.fromkeys(("us", "µs", "U", "micro", "microsecond"), "us"),
    **dict.fromkeys(("ns", "N", "nano", "nanosecond"), "ns"),
}
#: nanoseconds per unit
_NANOSECONDS = {
    unit: seconds * 10**9 for unit, seconds in (("W", 604_800), ("D", 86_400), ("h", 3600), ("m", 60), ("s", 1))
} | {"ms": 10**6, "us": 10**3, "ns": 1}
#: a time of day, and the time zone after it
_CLOCK = re.compile(r"\d{1,2}((:\d{2}){1,2}([.,]\d+)?(\s*[ap]m\b)?|\s*[ap]m\b)(\s*[+-]\d{2}:?\d{2}\b)?", re.I)
_DAY_FIRST = re.compile(r"(?<!\d)(?<!\d\W)(?:1[3-9]|[2-9]\d)\W+(\d{1,2})\W+\d")  #: a date with the day first
_PART = re.compile(r"\d+|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", re.I)  #: a part of a date
CALENDAR = ("Y", "M")  #: the units of which NumPy knows only a mean length in the others


def check_times(times: Any) -> str | None:
    """Check the option `times`: None, "int64", or a dtype with a unit.

    A dtype with a unit is, for example, "datetime64[ns]".

    Raises
    ------
    InvalidOption
        It is none of these, and not True or False.
    """
    if times is None or isinstance(times, bool | np.bool_):
        return INTEGERS if times else None
    try:
        dtype = np.dtype(times)
        if dtype == np.int64 or (dtype.kind == "M" and np.datetime_data(dtype)[0] != "generic"):
            return dtype.name
    except (TypeError, ValueError, SyntaxError):
        pass
    raise InvalidOption(f'times is {times!r}; it must be True, "int64", or a dtype with a unit as "datetime64[ns]"')


def as_times(values: Any, n: int, name: str = "time") -> Any:
    """Return the times of `n` edges: int64[n], or datetime64[n] with its unit. O(n).

    `values` has a time for each edge, or is a single time for all. Dates of Python become datetime64[us], and
    datetime64[ns] where Timestamps of pandas have nanoseconds. Dates with a time zone become UTC. Strings are read by
    pandas, with the month before the day, and in the form of ISO 8601 where pandas is not installed.

    Raises
    ------
    InvalidBatch
        A value is missing, no integer and no date, or is outside ``-2**63 + 1 .. 2**63 - 1``.
    """
    # Bring the column to a dtype of integers or dates, in native byte order.
    array = as_column(values, name)
    if array.size == 0 and array.dtype.kind in "fOUT":  # NumPy's for an empty list
        array = array.astype(np.int64)
    if array.dtype.kind in "OUT":
        array = _of_objects(array, name)
    if not array.dtype.isnative:  # otherwise its dtype would equal none of those below
        array = array.astype(array.dtype.newbyteorder("="))
    # Refuse NaT, values outside the limits, and other dtypes.
    bad = None
    if array.dtype.kind == "M":
        _refuse_nat(np.isnat(array.reshape(-1)), name)
        if np.datetime_data(array.dtype)[0] == "generic":
            raise InvalidBatch(f"{name} has dtype datetime64 without a unit; give it one, as datetime64[ns]")
    elif array.dtype.kind in "iu":
        bad = array > MOST if array.dtype == np.uint64 else array < LEAST if array.dtype == np.int64 else None
    else:
        if array.dtype.kind == "f":
            refuse_missing(array != array, name)
        raise InvalidBatch(
            f"{name} has dtype {array.dtype}; times are integers of 64 bits or datetime64; astype('int64') makes "
            'integers of a column, and pandas.to_datetime(column, unit="s") dates of seconds'
        )
    if bad is not None and bad.any():
        at = int(bad.argmax())
        raise InvalidBatch(f"{cell(name, at)} is {array.reshape(-1)[at]}; times run from {LEAST} to {MOST}")
    # Repeat a single time for all edges.
    if array.dtype.kind in "iu":
        array = array.astype(np.int64, copy=False)
    return array.reshape(1).repeat(n) if array.ndim == 0 else array


def _of_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Return Python objects as times: whole numbers, dates, or strings of dates."""
    values = array.reshape(-1).tolist()
    _refuse_nat(np.fromiter((type(value).__name__ == "NaTType" for value in values), bool, len(values)), name)
    refuse_missing(np.fromiter(map(is_missing, values), bool, len(values)), name)
    kinds = set(map(type, values))
    whole = {kind for kind in kinds if issubclass(kind, int | np.integer)} - {bool, np.timedelta64}
    if whole == kinds:
        for at, value in enumerate(values):
            if not LEAST <= int(value) <= MOST:
                raise InvalidBatch(f"{cell(name, at)} is {shown(value)}; times run from {LEAST} to {MOST}")
        return np.array(values, np.int64).reshape(array.shape)
    if all(issubclass(kind, str) for kind in kinds):
        return _parsed(values, name).reshape(array.shape)
    if np.datetime64 in kinds and all(issubclass(kind, np.datetime64 | datetime.date) for kind in kinds):
        rows = [at for at, value in enumerate(values) if not isinstance(value, np.datetime64)]
        dates = _dates(_in_utc([values[at] for at in rows], name, rows), name)
        for at, date in zip(rows, dates, strict=True):
            values[at] = date
        return _of_units(values, name).reshape(array.shape)
    for at, value in enumerate(values):
        if type(value) not in whole and not isinstance(value, datetime.date | np.datetime64):
            raise InvalidBatch(f"{cell(name, at)} is {shown(value)}; times are integers of 64 bits or datetime64")
    if whole:
        at = next(at for at, value in enumerate(values) if type(value) not in whole)
        raise InvalidBatch(f"{cell(name, at)} is {shown(values[at])}, and others are integers; all are of one kind")
    return _dates(_in_utc(values, name, range(len(values))), name).reshape(array.shape)


def _of_units(values: list[Any], name: str) -> np.ndarray:
    """Return dates of NumPy, in the finest of their units."""
    units: dict[Any, list[int]] = {}
    for at, value in enumerate(values):
        units.setdefault(value.dtype, []).append(at)
    try:
        finest = np.result_type(*units)
    except OverflowError:
        raise InvalidBatch(f"{name} has {' and '.join(map(str, units))}; these have no common unit") from None
    kept = np.empty(len(values), finest)
    bad = list[int]()
    for unit, rows in units.items():
        dates = np.array([values[at] for at in rows], unit)
        kept[rows] = converted = _converted(dates, finest, name)
        bad += np.array(rows)[converted.astype(unit) != dates].tolist()
    if bad:
        raise InvalidBatch(f"{cell(name, min(bad))} is {values[min(bad)]}, which {finest} cannot hold; others need it")
    return kept


def _converted(dates: Any, dtype: Any, name: str) -> Any:
    """Return dates in another unit; those that it cannot hold wrap."""
    try:
        return dates.astype(dtype)
    except OverflowError:  # the factor between the units is too large
        raise InvalidBatch(f"{name} has dtype {dates.dtype}, and {dtype} is too far from it to convert") from None


def _in_utc(values: list[Any], name: str, rows: Sequence[int]) -> list[Any]:
    """Return dates without their time zones, in UTC. `rows` are their places in the column.

    Raises `InvalidBatch` if only some have a time zone: which one the others mean is unknown.
    """
    zoned = [getattr(value, "tzinfo", None) is not None for value in values]
    if not any(zoned):
        return values
    if not all(zoned):
        at, other = zoned.index(False), zoned.index(True)
        raise InvalidBatch(
            f"{cell(name, rows[at])} is {values[at]}, without a time zone, and {cell(name, rows[other])} is "
            f"{values[other]}; dates have time zones, which become UTC, or none has one"
        )
    naive = []
    for at, value in zip(rows, values, strict=True):
        try:
            # A Timestamp of pandas keeps its nanoseconds.
            convert = getattr(value, "tz_convert", None)
            naive.append(convert(None) if convert else value.astimezone(datetime.UTC).replace(tzinfo=None))
        except (OverflowError, ValueError):
            where = f"{cell(name, at)} is {value}"
            raise InvalidBatch(f"{where}, which in UTC is outside the years 1 to 9999 of Python") from None
    return naive


def _dates(values: list[Any], name: str) -> np.ndarray:
    """Return Python dates or pandas Timestamps as datetime64[us] or datetime64[ns]."""
    dates = np.array(values, "datetime64[us]")
    more = np.array([getattr(value, "nanosecond", 0) for value in values], np.int64)
    if not more.any():
        return dates
    bad = np.abs(dates.astype(np.int64)) > MOST // 1000 - 1
    if bad.any():
        at = int(bad.argmax())
        raise InvalidBatch(f"{cell(name, at)} is {values[at]}, which datetime64[ns] cannot hold; others need it")
    return dates.astype("datetime64[ns]") + more


def _parsed(texts: list[str], name: str) -> np.ndarray:
    """Return strings as datetime64, in UTC."""
    try:
        dates = _read(texts)
    except (ValueError, TypeError, OverflowError):
        raise _unread(texts, name) from None
    _refuse_nat(np.isnat(dates), name)
    # All have the format of the first one, unless pandas knows none for it and reads each by itself.
    last = len(texts) - 1 if _read_apart(texts[0]) else 0
    rows = sorted({texts[row]: row for row in range(last, -1, -1)}.values())  # the first of equal ones
    days: Any = dates[rows, None].astype("datetime64[D]")
    for row, near in zip(rows, np.datetime_as_string(days + np.arange(-1, 2)).tolist(), strict=True):
        _check_guess(texts[row], near, cell(name, row))
    return dates


def _read_apart(first: str) -> bool:
    """Return True if pandas knows no format for the first string, and so reads each by itself."""
    try:
        from pandas.tseries.api import guess_datetime_format
    except ImportError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(first) is not str or guess_datetime_format(first) is None


def _unread(texts: list[str], name: str) -> InvalidBatch:
    """Return the error for strings that are not dates of one format. It names the first that is none."""
    # A prefix is read if all its strings are, so a bisection finds the first other one.
    row = bisect_left(range(1, len(texts)), True, key=lambda n: not _are_dates(texts[:n]))
    if row == 0 or not _are_dates(texts[row : row + 1]):
        return InvalidBatch(
            f"{cell(name, row)} is {texts[row]!r}, which is no date; times are integers, or whole dates"
        )
    return InvalidBatch(
        f"{cell(name, row)} is {texts[row]!r}, and the first is {texts[0]!r}; dates in strings have one format, and "
        'pandas.to_datetime(column, format="mixed") reads others'
    )


def _are_dates(texts: list[str]) -> bool:
    """Return True if strings are read as dates, all in the format of the first one."""
    try:
        _read(texts)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _read(texts: list[str]) -> np.ndarray:
    """Return strings as datetime64, in UTC: by pandas, or by NumPy without it."""
    try:
        import pandas as pd
    except ImportError:
        return np.array(texts, "datetime64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns if it cannot infer a format, or reads the day first
        dates: np.ndarray = pd.to_datetime(texts, utc=True).tz_convert(None).to_numpy()
        return dates


def _check_guess(text: str, near: list[str], name: str) -> None:
    """Raise `InvalidBatch` for a string that pandas has read by a guess, which is another for other strings.

    `near` are its date in UTC, the day before and the day after: in the string's time zone it may be any of them.

    Pandas takes the first number for the day where it is no month. Where the year is missing, it takes year 1 or this
    one, and for a time of day it takes today.
    """
    if text in ("now", "today"):
        return
    rest = _CLOCK.sub(" ", text)
    first = _DAY_FIRST.search(rest)
    if first and any(int(day[-5:-3]) == int(first[1]) for day in near):
        raise InvalidBatch(
            f"{name} is {text!r}; dates of numbers begin with the month, or with a year of four digits; "
            "pandas.to_datetime(column, dayfirst=True) makes dates of others"
        )
    # The year has all digits, or is one of three parts.
    years, parts = {day[:-6] for day in near}, _PART.findall(rest)
    short = {year[2:] for year in years if year >= "1900"} if len(parts) > 2 else set()
    if not any(year in rest for year in years) and short.isdisjoint(parts):
        raise InvalidBatch(f"{name} is {text!r}, which has no year; times are integers, or whole dates")


def _refuse_nat(missing: np.ndarray, name: str) -> None:
    """Raise `InvalidBatch` for the first date that is NaT."""
    if missing.any():
        raise InvalidBatch(f"{cell(name, int(missing.argmax()))} is NaT; times run from {LEAST} to {MOST}, without NaT")


def as_stamps(batch: Any, times: str | None) -> Any:
    """Return the times of a checked batch in the unit of a graph: int64[n], or None.

    `times` is the option of the graph.

    Raises
    ------
    InvalidBatch
        The batch has times and the graph none; or the batch inserts without times and the graph has some; or the times
        are of another kind, or do not fit the graph's unit. The message names the value.
    """
    time, op = batch.time, batch.op
    if times is None:
        if time is not None:
            raise InvalidBatch("the batch has times and the graph keeps none; create it with times=True")
        return None
    if len(batch) == 0:
        return None
    if time is None:
        if op is not None and (isinstance(op, int) or bool((op < 0).all())):
            return None
        raise InvalidBatch("the batch inserts edges without times, and every edge of the graph has one; give time=")
    return _in_unit(time, times, "time")


def _in_unit(values: Any, times: str, name: str) -> Any:
    """Return checked times as int64 in the unit of a graph."""
    dtype = np.dtype(values.dtype)
    if dtype.kind == "i" and times == INTEGERS:
        return values
    if dtype.kind == "i" or times == INTEGERS:
        raise InvalidBatch(
            f"{name} has dtype {dtype} and the graph has times={times!r}; give times of that dtype, or make the graph "
            f"with times={dtype.name!r}"
        )
    kept = _converted(values, times, name)
    bad = kept.astype(dtype) != values
    if bad.any():
        at = int(bad.argmax())
        raise InvalidBatch(f"{name}[{at}] is {values[at]}, which times={times!r} cannot hold exactly")
    return kept.view(np.int64)


def as_shown(stamps: Any, times: str | None) -> Any:
    """Return a graph's times for users: int64, or datetime64 in its unit. Without a copy."""
    return stamps if stamps is None or times in (None, INTEGERS) else stamps.view(times)


def as_window(span: int | None, times: str | None) -> Any:
    """Return a graph's window for users: an int, or a ``numpy.timedelta64`` in the unit of its times."""
    if span is None or times is None or times == INTEGERS:
        return span
    return np.array(span, times.replace("datetime64", "timedelta64"))[()]


def as_instant(before: Any, times: str) -> int:
    """Return the argument `before` in the unit of a graph's times; `InvalidOption` if it is no time."""
    if not is_one(before):
        raise InvalidOption(f"before is {before!r}; it must be one time")
    try:
        return int(_in_unit(as_times(before, 1), times, "before")[0])
    except InvalidBatch as error:
        raise InvalidOption(f"before is {written(before)}: {error}") from None


def as_span(window: Any, times: str | None, name: str = "window") -> tuple[int, str]:
    """Return the span `window`, the value of the option `name`, as a number of units, and the option `times` for it.

    A timedelta, or a string such as "1h" or "2 days 30 min", is of dates; without `times` these are datetime64[ns].

    Raises
    ------
    InvalidOption
        It is no span, is not above 0, is not a whole number of units, or does not fit `times`; or it is in years or
        months, and `times` is in a finer unit.
    """
    # A number is a span of integer times.
    if isinstance(window, str):
        window = _timedelta(window, name)
    if not isinstance(window, datetime.timedelta | np.timedelta64):
        if times not in (None, INTEGERS):
            raise InvalidOption(f"{name} is {written(window)} and times is {times!r}; give it as a timedelta")
        return _positive(window, window, name), INTEGERS
    # A timedelta is a span of dates. Years and months have no fixed length in finer units.
    times = times or "datetime64[ns]"
    if times == INTEGERS:
        raise InvalidOption(
            f'{name} is {window!r} and times are integers; give a span in their unit, or times="datetime64[ns]"'
        )
    if isinstance(window, np.timedelta64):
        unit, kept = (np.datetime_data(dtype)[0] for dtype in (window.dtype, np.dtype(times)))
        if unit == "generic":
            raise InvalidOption(f'{name} is {window!r}, without a unit; give it one, as np.timedelta64(1, "h")')
        if unit in CALENDAR and kept not in CALENDAR:
            raise InvalidOption(
                f"{name} is {window!r}, and years and months differ in length; give it in weeks, days, hours, minutes, "
                'seconds or less ("W", "D", "h", "m", "s", "ms", "us", "ns")'
            )
    # Convert it, which must be exact. NumPy by itself drops the nanoseconds of a Timedelta of pandas.
    try:
        exact = window.to_timedelta64() if hasattr(window, "to_timedelta64") else np.timedelta64(window)
        unit = times.replace("datetime64", "timedelta64")
        span = exact.astype(unit)
        if np.isnat(exact) or span.astype(exact.dtype) != exact:
            raise ValueError
    except (ValueError, OverflowError, TypeError):
        raise InvalidOption(f"{name} is {window!r}; it must be a whole number of the unit of times={times!r}") from None
    return _positive(int(span.astype(np.int64)), window, name), times


def _timedelta(text: str, name: str) -> Any:
    """Parse a span in words, in the notation of pandas; `InvalidOption` for other text.

    The result is in the finest unit of the text.
    """
    parts = re.findall(r"(\d{1,30})\s*([a-zA-Zµ]+)", text)
    units = [_unit(unit) for _, unit in parts]
    if not parts or None in units or re.sub(r"\d{1,30}\s*[a-zA-Zµ]+", "", text).strip():
        raise InvalidOption(f'{name} is {text!r}; it is a span such as "1h", "30 min", "7 days" or "1h 30min"')
    lengths = [_NANOSECONDS[unit] for unit in units if unit is not None]
    span = sum(int(n) * length for (n, _), length in zip(parts, lengths, strict=True)) // min(lengths)
    finest = next(unit for unit, length in _NANOSECONDS.items() if length == min(lengths))
    if span > MOST:
        raise InvalidOption(f"{name} is {text!r}; a span has up to {MOST} of its finest unit, which is {finest!r} here")
    return np.array(span, f"timedelta64[{finest}]")[()]


def _unit(text: str) -> str | None:
    """Return NumPy's name of a unit of time, in any case and number; None for other text."""
    if text in _UNITS or len(text) == 1:  # a single letter in another case is no unit: M are months
        return _UNITS.get(text)
    lower = text.lower()
    return _UNITS.get(lower) or _UNITS.get(lower.removesuffix("s"))


def _positive(span: Any, window: Any, name: str) -> int:
    try:
        n = operator.index(span)
    except TypeError:
        n = 0
    if isinstance(span, bool) or not 0 < n <= MOST:
        raise InvalidOption(f"{name} is {written(window)}; it must be a timedelta or a whole number, above 0")
    return n
