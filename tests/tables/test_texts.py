"""Columns of strings are indexed and compared as NumPy's arrays of them."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph import EdgeBatch

STRINGS = ["b", "ä", "", "b", "c"]


@pytest.fixture(params=["plain", "coded"])
def texts(request):
    pd = pytest.importorskip("pandas")
    ends = STRINGS if request.param == "plain" else pd.Categorical(STRINGS)
    return EdgeBatch(ends, ends, keys="string").src


@pytest.mark.parametrize(
    "rows",
    [[], [2, 0], [0, 1, 1], [-1], np.array([4, 3], np.uint32), [True, False, False, True, True], slice(3, None, -1)],
    ids=str,
)
def test_rows(texts, rows):
    assert texts[rows].tolist() == np.array(STRINGS, object)[rows].tolist()


@pytest.mark.parametrize("rows", [[5], [-6], [True], [0.0]], ids=str)
def test_bad_rows(texts, rows):
    with pytest.raises(IndexError):
        texts[rows]


def test_comparisons(texts):
    assert (texts == "b").tolist() == [True, False, False, True, False]
    assert (texts != "b").tolist() == [False, True, True, False, True]
    assert (texts == texts).all()
    assert texts[texts == "b"].tolist() == ["b", "b"]
    assert (texts == None).tolist() == [False] * 5  # noqa: E711


def test_repr(texts):
    assert repr(texts) == "array(['b', 'ä', '', 'b', 'c'], dtype=object)"
