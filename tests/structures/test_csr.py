"""csr passes the conformance suite; its invariants are found broken where they are."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import StructureConformance
from edge_model import edges

from mgraph.structures import create


class TestCsr(StructureConformance):
    name = "csr"


BREAKS = {
    "1": lambda s: s._offsets.__setitem__(1, 9),
    "1 or 4": lambda s: s._offsets.__setitem__(-1, 5),
    "2": lambda s: s._dst.__setitem__(1, 0),
    "3": lambda s: s._dst.__setitem__(3, 60),
    "4": lambda s: setattr(s, "_weights", s._weights[:1]),
    "5": lambda s: s._weights.__setitem__(2, np.nan),
}


@pytest.mark.parametrize("number", BREAKS)
def test_check_invariants_finds(number):
    s = create("csr", 10, weighted=True)
    s.insert(edges(s, [(0, 1), (0, 2), (4, 0), (9, 9)]))
    s.check_invariants()
    BREAKS[number](s)
    with pytest.raises(AssertionError, match=f"^{number}: "):
        s.check_invariants()
