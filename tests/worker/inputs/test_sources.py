"""Parts of several ranks that one rank reads after a loss: checked and joined as each would be alone."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph import EdgeBatch, InvalidBatch
from mgraph.device import Device
from mgraph.worker.inputs.sources import joined


def join(times, *parts):
    return joined([lambda step, part=part: part for part in parts], Device("cpu"), times)(0)


def test_times_of_joined_parts():
    deletions = EdgeBatch([0], [1], op=-1)
    batch = join("int64", EdgeBatch([0, 1], [1, 2], time=[5, 6]), deletions)
    assert (batch.src.tolist(), batch.op.tolist(), batch.time[:2].tolist()) == ([0, 1, 0], [1, 1, -1], [5, 6])
    assert join("int64", deletions, deletions).time is None

    # In several units, and before a part of deletions.
    parts = [EdgeBatch([0], [1], time=np.array([1], f"M8[{unit}]")) for unit in ("D", "ms")]
    batch = join("datetime64[s]", deletions, parts[0], EdgeBatch([0], [1], time=np.datetime64(7, "s")))
    assert batch.time[1:].tolist() == np.array([86400, 7], "M8[s]").tolist()
    for times, others, message in (
        ("datetime64[s]", parts, "cannot hold exactly"),
        ("int64", [parts[0], EdgeBatch([0], [1], time=[5])], "time has dtype datetime64"),
        ("int64", [EdgeBatch([0], [1]), EdgeBatch([0], [1], time=[5])], "inserts edges without times"),
        (None, [EdgeBatch([0], [1]), EdgeBatch([0], [1], time=[5])], "the graph keeps none"),
    ):
        with pytest.raises(InvalidBatch, match=message):
            join(times, *others)
