"""Matrix Market: no input ends the process or changes a value."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from plain_graph import fresh_rng

from mgraph import DynamicGraph, ReadError

HEAD = "%%MatrixMarket matrix coordinate real general\n3 3 2\n"


def read(tmp_path, text, **options):
    path = tmp_path / "a.mtx"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return DynamicGraph.read(path, **options)


def weights(graph):
    with graph:
        frame = graph.to_pandas()
        values = frame.get("weight", np.ones(len(frame)))
        return dict(zip(zip(frame["source"].tolist(), frame["target"].tolist(), strict=True), values, strict=True))


@pytest.mark.parametrize("end", ["", "\n", " ", "\t", "\r", "\r\n", " \n\n", "\n\n\n", "\n% end"])
def test_every_end_of_the_last_line(tmp_path, end):
    assert weights(read(tmp_path, f"{HEAD}1 2 1.5\n\n% between\n  \n3 1 -2{end}")) == {(0, 1): 1.5, (2, 0): -2.0}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("1.5D+01", 15.0), ("1.5d1", 15.0), ("2e3", 2000.0), (".5", 0.5), ("5.", 5.0), ("+7", 7.0), ("inf", np.inf),
        ("-Infinity", -np.inf), ("1e-400", 0.0), ("16777215", 16777215.0),
    ],
)  # fmt: skip
def test_values_that_are_numbers(tmp_path, value, kept):
    assert weights(read(tmp_path, f"{HEAD}1 2 {value}\n3 1 1\n"))[0, 1] == np.float32(kept)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1,5", "line 3 has '1,5', which is no number"), ("1.5abc", "no number"), ("1e400", "too large"),
        ("1D999", "too large"), ("0x10", "no number"), ("1_0", "no number"), ("1-2", "no number"), ("-", "no number"),
        ("--1", "no number"), ("1.5\0", "no number"), ("\u0663", "no number"), ("nan", "row 0 is missing"),
        ("1 2", "line 3 has 4 numbers; it must have 3"), ("", "line 3 has 2 numbers"), ("1e", "no number"),
        ("1e39", "stored as float32"), ("infinit", "no number"), ("1.2.3", "no number"),
    ],
)  # fmt: skip
def test_values_that_are_none(tmp_path, value, message):
    with pytest.raises(ReadError, match=message):
        read(tmp_path, f"{HEAD}1 2 {value}\n3 1 1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%MatrixMarket matrix coordinate pattern hermitian\n2 2 1\n1 2\n", "line 1 says .* pattern hermitian"),
        ("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 0 0\n", "weights are real numbers"),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n2 2 1\n2 1\n", "no values"),
        ("%%MatrixMarket vector coordinate real general\n2 2 1\n1 2 1\n", "line 1 is"),
        (HEAD.replace("3 3 2", "3 3 -2"), "line 2 is '3 3 -2'"),
        (HEAD.replace("3 3 2", "3 3 99999999999999999999"), "line 2 is"),
        (HEAD, "announces 2 rows, and 0 follow"),
        (f"{HEAD}1 2 1\n3.5 1 1\n", "entry 2 has the row 3.5; there are 1 to 3"),
        (f"{HEAD}1 2 1\n0 1 1\n", "entry 2 has the row 0"),
        (f"{HEAD}1 2 1\n1 99999999999999999999 1\n", "entry 2 has the column 1e"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, text, message):
    with pytest.raises(ReadError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("precision", [3, 16, 22])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_what_scipy_writes(tmp_path, precision, symmetry):
    rng = fresh_rng()
    matrix = sp.random_array((40, 40), density=0.1, rng=rng, dtype=np.float64)
    if symmetry != "general":
        matrix = sp.coo_array(matrix + (matrix.T if symmetry == "symmetric" else -matrix.T))
    scipy.io.mmwrite(text := io.BytesIO(), matrix, precision=precision, symmetry=symmetry)
    if b"\0" in text.getvalue():  # SciPy writes a NUL in the place of a long number's end
        with pytest.raises(ReadError, match="which is no number"):
            read(tmp_path, text.getvalue())
        return
    rows = [line.split() for line in text.getvalue().decode().splitlines() if not line.startswith("%")][1:]
    want = {(int(i) - 1, int(j) - 1): float(value) for i, j, value in rows}  # SciPy's own reader would end the process
    if symmetry != "general":
        sign = 1 if symmetry == "symmetric" else -1
        want |= {(j, i): sign * value for (i, j), value in want.items() if i != j}
    expected = {place: np.float32(value) for place, value in want.items()}
    assert weights(read(tmp_path, text.getvalue(), directed=True)) == expected


def test_entries_at_one_place_are_added_up(tmp_path):
    text = "%%MatrixMarket matrix coordinate integer general\n2 2 300\n" + "1 2 1\n" * 299 + "2 1 5\n"
    assert weights(read(tmp_path, text)) == {(0, 1): 299.0, (1, 0): 5.0}
    symmetric = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n2 1 1\n2 1 2\n1 1 4\n"
    assert weights(read(tmp_path, symmetric)) == {(0, 1): 3.0, (0, 0): 4.0}


def test_every_truncation(tmp_path):
    """Of each part of a file there is the right graph or an error, and never the end of the process."""
    whole = f"{HEAD}1 2 15\n3 1 22\n"
    graphs = 0
    for end in range(len(whole)):
        try:
            found = weights(read(tmp_path, whole[:end]))
        except ReadError:
            continue
        graphs += 1
        assert found[0, 1] == 15
        assert found[2, 0] == float(whole[:end].split()[-1])
    assert graphs == 2  # without the last newline, and without the last digit
