"""The benchmark of copies, at a tiny size: its lines, and a wrong copy."""

from __future__ import annotations

from typing import Any

import pytest
from bench_runs import SMALL, bench, of

from mgraph.structures import names
from mgraph.worker.shard.shard import Shard
from workloads.__main__ import main
from workloads.bench import copy as copies

OPTIONS = ["--workers", "2", "--batch", "50", "--batches", "2", "--sources", "40", "--repeats", "2", "--copies", "3"]


@pytest.mark.slow
def test_all_measurements(tmp_path):
    lines = bench(tmp_path, "copy", *OPTIONS)
    clones = of(lines, "clone")
    assert {line["structure"] for line in clones} == set(names())
    assert len({line["arcs"] for line in clones}) == 1
    assert all(line["n"] == 2 and line["nbytes"] > 0 and line["share"] > 0 for line in clones)
    (client,) = of(lines, "client", workers=2)
    assert client["n"] == 2
    (beside,) = of(lines, "beside", batch=50, sources=40)
    assert beside["batches"]["alone"]["n"] == 8
    assert beside["batches"]["beside"]["n"] >= 1
    assert beside["shares"].keys() == {"p50_ms", "mean_ms", "max_ms"}
    assert beside["algorithm_share"] > 0
    (freed,) = of(lines, "freed", copies=3)
    assert all(freed[when][who] > 0 for when in ("before", "after") for who in ("workers", "client"))


def test_a_wrong_copy_is_caught(monkeypatch, capsys):
    real = copies.copied

    def wrong(*args: Any) -> Shard:
        twin = real(*args)
        twin.num_edges += 1
        return twin

    monkeypatch.setattr(copies, "copied", wrong)
    assert main(["bench", "copy", *SMALL, *OPTIONS, "--measure", "clone"]) == 2
    assert "csr: the copy has" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--measure", "walks"), ("--copies", "0"), ("--sources", "0")])
def test_mistakes(option, value, capsys):
    assert main(["bench", "copy", *SMALL, option, value]) == 2
    assert f"{option} " in capsys.readouterr().err
