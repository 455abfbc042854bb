"""The long run on CPU workers, and the replay that judges it."""

import json

import numpy as np
import pytest

from mgraph.device import Device
from mgraph.sources.rmat import Rmat
from workloads.__main__ import main
from workloads.inputs.churn import Churn
from workloads.longrun.replay import Left, Sent, _left

SMALL = [
    "longrun",
    "--gpus",
    "2",
    "--device",
    "cpu",
    "--scale",
    "9",
    "--batch",
    "400",
    "--batches",
    "5",
    "--every",
    "2",
]
SMALL += ["--part", "1000"]


def lines_of(folder):
    (path,) = folder.glob("longrun-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "more", [[], pytest.param(["--directed", "--ids", "drawn", "--structure", "graphvine"], marks=pytest.mark.slow)]
)
def test_what_is_left_is_what_was_sent(tmp_path, capsys, more):
    folder = tmp_path / "archive" / "cpu"
    assert main([*SMALL, *more, "--out", str(folder)]) == 0
    lines = lines_of(folder)
    assert [line["kind"] for line in lines] == ["run", "built", *["batches"] * 3, "check", "end"]
    batches = [line for line in lines if line["kind"] == "batches"]
    assert [line["done"] for line in batches] == [2, 4, 5]
    built = lines[1]["epoch"]
    assert [line["epoch"] - built for line in batches] == [2, 4, 5]
    assert all(line["reached"] > 100 and line["pagerank_iterations"] > 1 for line in batches)
    check = lines[-2]
    assert check["edges"] == batches[-1]["edges"] != lines[1]["edges"]
    assert check["operations"] == 5 * 400
    assert check["hash"] in capsys.readouterr().out
    assert main(["report", "--results", str(folder.parent), "--only", "longrun"]) == 0
    assert "| batches | edges | arcs | updates/s |" in capsys.readouterr().out


@pytest.mark.parametrize("loses", [pytest.param("an arc", marks=pytest.mark.slow), "a bit of the hash"])
def test_a_graph_that_is_not_what_was_sent(monkeypatch, capsys, loses):
    from workloads.longrun import command

    def wrong(*args):
        right = replayed(*args)
        return Left(right.arcs + 1, right.hash) if loses == "an arc" else Left(right.arcs, right.hash ^ 1)

    replayed = command.replayed
    monkeypatch.setattr("workloads.longrun.command.replayed", wrong)
    assert main(SMALL) == 2
    assert f"{'arcs' if loses == 'an arc' else 'hash'} of the graph: " in capsys.readouterr().err


@pytest.mark.parametrize("directed", [True, False])
def test_a_replay_is_the_stream_applied_to_a_set(directed):
    n, size, steps, device = 1 << 5, 3, 4, Device("cpu")
    source = Rmat(5, 20, seed=3)
    churn = Churn(Rmat(5, 20, seed=3, first=90), Rmat(5, 20, seed=3))
    edges = set()

    def arcs(part):
        for a, b in zip(part[0].tolist(), part[1].tolist(), strict=True):
            yield from ((a, b),) if directed else ((a, b), (b, a))

    edges.update(arcs(Rmat(5, 90, seed=3)(0, 1, 0, device)))
    for step in range(steps):
        for rank in range(size):  # rank order is stream order
            edges.update(arcs(churn.come(rank, size, step, device)))
            edges.difference_update(arcs(churn.go(rank, size, step, device)))
    sent = Sent(source, 90, churn, steps, size, directed)
    found = [_left(device, sent, lo, lo + 8) for lo in range(0, n, 8)]
    keys = np.concatenate(found)
    assert 10 < len(edges) == len(keys)
    assert {(int(key >> np.uint64(32)), int(key & np.uint64(0xFFFFFFFF))) for key in keys} == edges


def test_too_many_vertices_to_be_checked_are_refused():
    from mgraph.errors import InvalidOption

    source = Rmat(31, 1)
    with pytest.raises(InvalidOption, match="too many"):
        _left(Device("cpu"), Sent(source, 1, Churn(source, source), 1000, 4, True), 0, 1 << 31)


def test_a_mistake_is_named(capsys):
    assert main(["longrun", "--device", "cpu", "--every", "0"]) == 2
    assert "--every is 0" in capsys.readouterr().err


@pytest.mark.multigpu(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("more", [pytest.param([], marks=pytest.mark.slow), ["--directed", "--ids", "drawn"]])
def test_on_two_gpus(tmp_path, more):
    options = ["longrun", "--gpus", "2", "--device", "gpu", "--scale", "16", "--batch", "100000", "--batches", "4"]
    assert main([*options, "--every", "2", *more, "--out", str(tmp_path)]) == 0
    lines = lines_of(tmp_path)
    assert all(min(line["nbytes"]) > 0 for line in lines if line["kind"] == "batches")
    assert lines[-2]["operations"] == 400_000
