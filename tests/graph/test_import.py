"""What importing mgraph does not do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from patience import patience

import mgraph


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import mgraph", ["numpy", "pickle", "distributed", "dask", "cupy"]),
        ("import mgraph, mgraph.structures, mgraph.kernels", ["distributed", "dask", "cupy"]),
        ("from mgraph import DynamicGraph; from mgraph.algorithms import ALGORITHMS", ["cupy", "ucxx", "rmm"]),
    ],
)
def test_what_is_not_imported(statement, absent):
    code = f"import sys\n{statement}\nprint([name for name in {absent} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(60), check=True
    )
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert all(getattr(mgraph, name) is not None for name in mgraph.__all__)
    assert set(mgraph.__all__) <= set(dir(mgraph))
    with pytest.raises(AttributeError, match="no attribute 'Graph'"):
        mgraph.Graph  # noqa: B018
