"""Times and spans as strings: what is read, in one way in every batch, and what is refused."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from mgraph import DynamicGraph, InvalidBatch, InvalidOption
from mgraph.tables.times import as_span, as_times

pd = pytest.importorskip("pandas")

NOON = np.datetime64("2026-11-28T12:00")
YEAR = "has no year|Out of bounds nanosecond"  #: pandas 2 refuses year 1


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-28T12:00Z",
        "20261128T120000",
        "2026-11-28 12:00:00,000",
        "28-Nov-26 12:00",
        "Nov 28, 26 12:00",
        "11/28/2026 12:00 PM",
        "Sat, 28 Nov 2026 14:00:00 +0200",
        "Sat Nov 28 12:00:00 UTC 2026",
        "11-28-2026 12:00",  # the year is no time zone
        "28-Nov-2026 12 pm",
        "12:00 11-28-2026",
        "28Nov26 12:00",
        "Nov 28 26 12 pm",
        "11/29/26 01:00 +1300",
    ],
)
def test_dates_with_a_year(text):
    assert as_times([text], 1) == NOON


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["12:00:00"], r"time\[0\] is '12:00:00', which has no year"),  # pandas takes today
        (["5 pm"], YEAR),
        (["12:00 +0200"], YEAR),
        (["Nov 28 21:15:49"], YEAR),  # and here year 1
        (["21:15 Nov 28"], YEAR),
        (["1/2"], YEAR),
        (["Nov 28 9pm"], YEAR),
        (["Nov 28 12:00 -02"], YEAR),
        (["1/2 5pm"], YEAR),
        (["Sat Jan 01"], YEAR),  # 1 is not the year 1
        (["Nov 28 2020 9pm", "12:00"], r"time\[1\] is '12:00', which has no year"),
        (["13/01/2020"], r"time\[0\] is '13/01/2020'; dates of numbers begin with the month.*dayfirst=True"),
        (["13.1.2020", "2.1.2020"], "begin with the month"),
        (["2/1/20", "13/1/20"], r"time\[1\] is '13/1/20'; .* begin with the month"),  # of which pandas does not warn
        (["Nov 28 2020 9pm", "13/1/2020 23:00 -0500"], r"time\[1\] is '13/1/2020.* begin with the month"),
        (["20/11/28"], "begin with the month, or with a year of four digits"),
        (["hello"], r"time\[0\] is 'hello', which is no date"),
        (["2024-05-01", "2024-05-02", "x", "y"], r"time\[2\] is 'x', which is no date"),
        (["2024-05-01", "2024-13-45"], r"time\[1\] is '2024-13-45', which is no date"),
        (
            ["2024-05-01", "2024-05-02", "2024-05-02 13:00", "2024-05-03 1:00"],
            r"time\[2\] is '2024-05-02 13:00', and the first is '2024-05-01'; .* format=\"mixed\"",
        ),
    ],
)
def test_strings_that_pandas_guesses(texts, message):
    with DynamicGraph(n_vertices=9, times=True) as graph:
        with pytest.raises(InvalidBatch, match=message):
            graph.insert(np.arange(len(texts)), np.arange(len(texts)), time=texts)
        assert graph.epoch == 0


@pytest.mark.parametrize("text", ["250 ms", "250MS", "250 Ms", "250 millis", "250000 US", "250000000 NS"])
def test_units_in_capitals(text):
    assert as_span(text, None)[0] == 250_000_000  # MS was minutes


@pytest.mark.parametrize("text", [f"{2**63} h", f"1 W {2**63 - 1} ns", f"{2**63 - 1} ns {2**63 - 1} ns 3 ns"])
def test_spans_past_int64(text):
    with pytest.raises(InvalidOption, match="window is '.*'; a span has up to 9223372036854775807 of its finest unit"):
        as_span(text, None)
    with pytest.raises(InvalidOption, match="it is a span such as"):
        as_span("9" * 5000 + "h", None)
    assert as_span("9223372036854775806 ns 1 ns", None)[0] == 2**63 - 1


def test_spans_of_pandas_keep_their_nanoseconds():
    assert as_span(pd.Timedelta("1us 5ns"), None) == (1005, "datetime64[ns]")
    assert as_span(pd.Timedelta("1ns"), None) == (1, "datetime64[ns]")
    with pytest.raises(InvalidOption, match=r"whole number of the unit of times='datetime64\[us\]'"):
        as_span(pd.Timedelta("1us 5ns"), "datetime64[us]")


@pytest.mark.filterwarnings("ignore:.*generic")  # NumPy 2.5 deprecates spans without a unit
@pytest.mark.parametrize("span", ["1 M", "1 fortnight", "1.5 h", 5])
def test_spans_without_a_unit(span):
    with pytest.raises(InvalidOption, match="window is"):
        as_span(np.timedelta64(span) if span == 5 else span, None)


def test_times_among_python_objects():
    odd = [np.int64(5), 6, np.uint8(7)]
    assert as_times(np.array(odd, object), 3).tolist() == [5, 6, 7]
    for values, message in (
        ([1, 2**70], rf"time\[1\] is {2**70}; times run from"),
        ([1, np.uint64(2**63)], rf"time\[1\] is {2**63}; times run from"),
        ([1, "x"], r"time\[1\] is 'x'; times are integers"),
        ([1, True], r"time\[1\] is True; times are integers"),
        ([1, np.timedelta64(1, "s")], r"time\[1\] is 1 seconds; times are integers"),
        ([1, datetime.date(2020, 1, 1)], r"time\[1\] is datetime.date\(2020, 1, 1\), and others are integers"),
    ):
        with pytest.raises(InvalidBatch, match=message):
            as_times(np.array(values, object), 2)


def test_dates_of_numpy_and_of_python_in_a_list():
    zoned = datetime.datetime(2026, 11, 28, 14, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    for other in (datetime.datetime(2026, 11, 28, 12), zoned):
        assert (as_times([NOON, other], 2) == NOON).all()
    day = datetime.date(2026, 11, 28)
    assert as_times([day, NOON], 2).tolist() == [datetime.datetime(2026, 11, 28), datetime.datetime(2026, 11, 28, 12)]
    with pytest.raises(InvalidBatch, match=r"time\[1\] is 2026.*, and others are integers"):
        as_times([1, NOON, day], 3)


def test_dates_with_and_without_a_time_zone_are_not_mixed():
    zoned = datetime.datetime(2026, 11, 28, 14, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    naive, day = datetime.datetime(2026, 11, 28, 14), datetime.date(2026, 11, 28)
    for other in (naive, day):
        with pytest.raises(
            InvalidBatch, match=r"time\[1\] is 2026-11-28.*without a time zone, and time\[0\] is .*02:00"
        ):
            as_times([zoned, other], 2)
        with pytest.raises(
            InvalidBatch, match=r"time\[2\] is 2026-11-28.*without a time zone, and time\[1\] is .*02:00"
        ):
            as_times([NOON, zoned, other], 3)
    pd = pytest.importorskip("pandas")
    with pytest.raises(InvalidBatch, match=r"time\[0\] is 2026-11-28 14:00:00, without a time zone"):
        as_times(pd.Series([pd.Timestamp(naive), pd.Timestamp(zoned)]), 2)
    assert (as_times([pd.Timestamp(zoned), zoned], 2) == NOON).all()


def test_fractions_say_how_to_make_times_of_them():
    with pytest.raises(InvalidBatch, match=r"dtype float64; .*astype\('int64'\).* unit=\"s\"\) dates of seconds"):
        as_times([1714564800.5], 1)


def test_no_times():
    for empty in ([], np.array([], "U4"), np.array([], object)):
        assert as_times(empty, 0).shape == (0,)


def test_dates_of_several_units_do_not_wrap():
    dates = [np.datetime64("2020-01-01", "D"), np.datetime64(1, "ns"), np.datetime64("2021", "Y")]
    for column in (dates, np.array(dates, object), tuple(dates)):
        times = as_times(column, 3)
        assert times.dtype == "M8[ns]"
        assert times.tolist() == np.array(dates, "M8[ns]").tolist()
    late = [np.datetime64(1, "ns"), np.datetime64("3000-01-01", "D")]
    for column in (late, np.array(late, object)):
        with pytest.raises(InvalidBatch, match=r"time\[1\] is 3000-01-01, which datetime64\[ns\] cannot hold"):
            as_times(column, 2)
    with DynamicGraph(times="datetime64[ns]") as graph:
        with pytest.raises(InvalidBatch, match=r"column 'time', row 1 is 3000-01-01"):
            graph.insert({"source": [0, 1], "target": [1, 2], "time": late})
        assert (graph.num_vertices, graph.epoch) == (0, 0)


def test_dates_that_python_and_numpy_cannot_convert():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    with pytest.raises(InvalidBatch, match=r"time\[1\] is 0001-01-01 00:00:00\+02:00, which in UTC is outside"):
        as_times([datetime.datetime(2020, 1, 1, tzinfo=zone), datetime.datetime(1, 1, 1, tzinfo=zone)], 2)
    with pytest.raises(InvalidBatch, match=r"time has datetime64\[as\] and datetime64\[s\]; these have no common unit"):
        as_times([np.datetime64(1, "as"), np.datetime64(1, "s")], 2)
    with DynamicGraph(n_vertices=2, times="datetime64[s]") as graph:
        with pytest.raises(InvalidBatch, match=r"time has dtype datetime64\[as\], and datetime64\[s\] is too far"):
            graph.insert(0, 1, time=np.array([1], "M8[as]"))
        with pytest.raises(InvalidOption, match="before is .*too far"):
            graph.expire(np.datetime64(1, "as"))
