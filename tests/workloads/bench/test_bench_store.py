"""The benchmark of stores at a tiny size: what it writes is sound, and a graph that is not the same is caught."""

from __future__ import annotations

import pytest
from bench_runs import SMALL, bench, of

import workloads.bench.store_run
from mgraph import DynamicGraph
from workloads.__main__ import main
from workloads.bench.disk import drop_cached, file_system, files_in, read_seconds, size_of, touch_memory, write_seconds

TINY = ["--batch", "500", "--batches", "3", "--disk-bytes", "100000", "--part", "1000"]


def test_store(tmp_path, capsys):
    lines = bench(tmp_path, "store", *TINY, "--path", str(tmp_path / "stores"), "--pause", "1")
    assert not list((tmp_path / "stores").iterdir())
    assert ": up to 458.3k bytes at the same time, about 858.3k written in all" in capsys.readouterr().out
    assert [line["what"] for line in of(lines, "store", part="disk")] == [
        "write, one sync", "write, a sync every 4k bytes", "read, cold", "read, cached",
    ]  # fmt: skip
    for sync in ("background", "always"):
        for name, turns in (("no pause", 1), ("burst", 7), ("paced", 1), ("paused", 1)):
            (line,) = of(lines, "store", part="stream", what=f"{sync}, {name}")
            assert (line["n"], line["turns"], line["edges"], line["lag_epochs"] >= 0) == (3 * turns, turns, 1500, True)
            assert 8 < line["bytes_per_edge"] < 9  # the headers, and marks of syncs
            assert line["disk_share"] > 0
            assert line["loss_percent"] < 100
    (snapshot,) = of(lines, "store", part="snapshot")
    assert snapshot["nbytes"] > 8 * snapshot["edges"]
    log, back = of(lines, "store", part="open")
    assert (log["what"], back["what"], back["edges"]) == ("the log", "a snapshot", snapshot["edges"])
    assert log["edges"] == 4096 + (3 + 30) * 500  # as drawn
    assert all(line["ratio"] > 0 and line["nbytes"] > 8 * line["edges"] for line in (log, back))
    capsys.readouterr()
    assert (
        main(["report", "--results", str(tmp_path.parent), "--hardware", tmp_path.name, "--only", "bench-store"]) == 0
    )
    assert "| stream | background, burst | 1500 |" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_worker(tmp_path):
    options = ["--parts", "recover", "--workers", "2", "--recover-edges", "2000,3000"]
    lines = bench(tmp_path, "store", *TINY, *options)
    for line in of(lines, "store", part="recover"):
        assert line["workers"] in (1, 2)
        assert line["seconds"] > line["reopened_s"] > line["restore_s"] > 0
    assert len(of(lines, "store", part="recover")) == 2


def test_what_is_opened_is_compared(monkeypatch, capsys):
    monkeypatch.setattr(DynamicGraph, "fingerprint", lambda graph: id(graph))
    assert main(["bench", "store", *SMALL, *TINY, "--parts", "open"]) == 2
    assert "the graph in resident" in capsys.readouterr().err


def test_a_full_disk_ends_the_wait(monkeypatch, capsys):
    monkeypatch.setattr(workloads.bench.store_run, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(DynamicGraph, "snapshot", lambda graph, wait: -1)
    assert main(["bench", "store", *SMALL, *TINY, "--parts", "snapshot"]) == 2
    assert "the snapshot of epoch -1: not within 0.01 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--parts", "disk,rest"], "'rest'; the parts are"),
        (["--pause", "-1"], "--pause is -1"),
        (["--batches", "0"], "--batches is 0"),
        (["--parts", "recover"], "add --workers 2"),
        (["--parts", "recover", "--workers", "1"], "--workers is 1"),
        (["--resident", str(1 << 50)], "bytes free"),
        (["--path", "/proc/nowhere"], "cannot write to /proc/nowhere"),
    ],
)
def test_bad_options(options, why, capsys):
    assert main(["bench", "store", *SMALL, *TINY, *options]) == 2
    assert why in capsys.readouterr().err


def test_disk(tmp_path):
    for every in (None, 1000):
        path = tmp_path / f"file-{every}"
        assert write_seconds(path, 12_345, every) > 0
        assert path.stat().st_size == 12_345
    assert size_of(files_in(tmp_path)) == 2 * 12_345
    drop_cached(files_in(tmp_path))
    assert read_seconds(files_in(tmp_path)) > 0
    assert file_system(tmp_path) != "unknown"
    assert touch_memory(100_000) > 0
