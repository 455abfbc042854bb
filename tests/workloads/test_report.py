"""Archived results as Markdown."""

from __future__ import annotations

import json

import pytest
from bench_runs import SMALL, bench

from workloads.__main__ import main

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


@pytest.fixture
def archive(tmp_path):
    """One run of bfs under the name of some hardware."""
    bench(tmp_path / "archive" / "some-gpu", "bfs", "--roots", "1")
    return tmp_path / "archive"


def test_report_between_the_markers(archive, tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert main(["report", "--results", str(archive), "--write", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert text.count("| gpma+ |") == text.count("| csr |") == 1
    assert "scale 9" in text
    again = text
    assert main(["report", "--results", str(archive), "--write", str(readme)]) == 0
    assert readme.read_text() == again
    assert main(["report", "--results", str(archive), "--hardware", "some"]) == 0
    assert "| gpma+ |" in capsys.readouterr().out


def test_report_takes_the_newest_whole_run(archive, capsys):
    (path,) = archive.glob("*/*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for name, day, cut in (("newer", "2999-01-01", None), ("cut", "2999-02-01", -1), ("older", "1999-01-01", None)):
        lines[0]["time"], lines[-2]["p50_ms"] = f"{day}T00:00:00", {"newer": 7.25, "cut": 8.25, "older": 9.25}[name]
        path.with_name(f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:cut]))
    assert main(["report", "--results", str(archive)]) == 0
    out = capsys.readouterr().out
    assert "7.25" in out
    assert "8.25" not in out
    assert "9.25" not in out


def test_a_run_that_was_interrupted_counts_where_there_is_no_whole_one(archive, tmp_path, capsys, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    folder = tmp_path / "interrupted" / "some-gpu"
    with monkeypatch.context() as patch:
        patch.setattr("workloads.bench.harness.Bench.close", interrupt)
        assert main(["bench", "bfs", *SMALL, "--roots", "1", "--out", str(folder)]) == 130
    capsys.readouterr()
    assert main(["report", "--results", str(folder.parent)]) == 0
    out = capsys.readouterr().out
    assert "interrupted before its end" in out and "| gpma+ |" in out
    (path,) = folder.iterdir()
    path.rename(archive / "some-gpu" / "newer.jsonl")
    assert main(["report", "--results", str(archive)]) == 0
    assert "interrupted" not in capsys.readouterr().out


def test_report_knows_every_benchmark(tmp_path, capsys):
    folder = tmp_path / "archive" / "cpu"
    for name, options in (
        ("updates", ["--batches", "20", "--repeats", "1", "--builds", "1", "--double"]),
        ("pagerank", ["--iterations", "1", "--repeats", "1"]),
        ("memory", ["--batch", "500"]),
    ):
        assert main(["bench", name, *SMALL, *options, "--out", str(folder)]) == 0
    capsys.readouterr()
    assert main(["report", "--results", str(folder.parent)]) == 0
    out = capsys.readouterr().out
    for title in ("**Updates**", "**PageRank**", "**Memory**"):
        assert title in out
    for row in (
        "| build from 4.1k edges, repeats included |",
        "| insert 20 |",
        "| delete 20, sorted and unique |",
        "p50 of the batches of 1M",
    ):
        assert row in out


def test_figures_of_others_stand_beside_those_of_the_same_graph(tmp_path, capsys):
    folder = tmp_path / "archive" / "cpu"
    run = ["--names", "components,cores", "--structure", "gpma+", "--repeats", "1"]
    assert main(["bench", "algorithms", "--scale", "6", "--device", "cpu", *run, "--out", str(folder)]) == 0
    (path,) = folder.iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["parameters"] |= {"scale": 22, "edge_factor": 16, "degree_order": True}
    for line in lines:
        if line["kind"] == "components":
            line["p50_ms"] = {"gpma+": 2.25, "csr": 1.5}[line["structure"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines[0]["parameters"] |= {"directed": True}
    path.with_name("another.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert main(["report", "--results", str(folder.parent), "--only", "others"]) == 0
    out = capsys.readouterr().out
    assert "| RMAT, scale 22 | components | 2.25 | 22.5 | 10 | 1.87 | 0.8311 |" in out
    assert "| RMAT, scale 22 | core numbers |" in out and out.count("RMAT") == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--results", "ARCHIVE", "--only", "bench-bfs,weather"], "weather"),
        (["--results", "ARCHIVE", "--only", "scaling"], "scaling"),
        (["--results", "ARCHIVE", "--write", "README"], BEGIN),
        (["--results", "ARCHIVE", "--write", "nowhere.md"], "nowhere.md"),
        (["--results", "ARCHIVE", "--hardware", "abacus"], "abacus"),
    ],
)
def test_report_mistakes(archive, tmp_path, capsys, options, named):
    readme = tmp_path / "README.md"
    readme.write_text("no markers\n")
    given = [option.replace("ARCHIVE", str(archive)).replace("README", str(readme)) for option in options]
    assert main(["report", *given]) == 2
    assert named in capsys.readouterr().err
    assert readme.read_text() == "no markers\n"


def test_a_marker_names_its_tables(archive, tmp_path):
    document = tmp_path / "README.md"
    document.write_text(
        f"a\n<!-- results:begin summary -->\nold\n{END}\nb\n<!-- results:begin bench-bfs -->\n{END}\nc\n"
    )
    assert main(["report", "--results", str(archive), "--write", str(document)]) == 0
    first, second = document.read_text().split("\nb\n")
    (path,) = archive.glob("*/*.jsonl")
    (median,) = {
        line["p50_ms"]
        for line in map(json.loads, path.read_text().splitlines())
        if line["kind"] == "bfs" and line["structure"] == "gpma+"
    }
    (row,) = [line for line in first.splitlines() if line.startswith("| BFS, ")]
    assert row.split("|")[2].strip() == f"{median:.4g}"
    assert "|  | gpma+ | csr |" in first
    assert "**BFS**" in second
    assert "**BFS**" not in first


def test_a_marker_names_the_hardware(archive, tmp_path):
    bench(archive / "1x-other", "bfs", "--roots", "2")
    document = tmp_path / "README.md"
    document.write_text(f"<!-- results:begin bench-bfs 1x-other -->\n{END}\n<!-- results:begin bench-bfs -->\n{END}\n")
    assert main(["report", "--results", str(archive), "--write", str(document)]) == 0
    first, second = document.read_text().split(f"{END}\n")[:2]
    assert first.count("**BFS**") == 1 and "roots 2" in first
    assert second.count("**BFS**") == 2


def test_the_summary_names_the_graph_of_each_row(tmp_path, capsys):
    folder = tmp_path / "archive" / "cpu"
    run = ["--batches", "20", "--repeats", "1", "--builds", "1", "--structure", "gpma+,csr"]
    assert main(["bench", "updates", *SMALL, *run, "--out", str(folder)]) == 0
    assert main(["bench", "updates", *SMALL, *run, "--uniform", "--out", str(tmp_path / "uniform")]) == 0
    for path in (tmp_path / "uniform").iterdir():
        path.rename(folder / f"uniform-{path.name}")
    capsys.readouterr()
    assert main(["report", "--results", str(folder.parent), "--only", "summary"]) == 0
    out = capsys.readouterr().out
    for row in ("| insert 20 into 4.1k edges, ms |", "| delete 20 from 4.1k edges, uniform, ms |"):
        assert out.count(row) == 1


def test_no_such_table(archive, tmp_path, capsys):
    document = tmp_path / "README.md"
    document.write_text(f"<!-- results:begin speed -->\n{END}\n")
    assert main(["report", "--results", str(archive), "--write", str(document)]) == 2
    assert "no table is named 'speed'" in capsys.readouterr().err
    assert document.read_text() == f"<!-- results:begin speed -->\n{END}\n"


def _doubled(structure, p50, p99, most, reserved=0):
    times = {"n": 3, "each_ms": [p50, p99, most], "p50_ms": p50, "p99_ms": p99, "max_ms": most}
    return {"kind": "double", "structure": structure, "size": 1000, "reserved_bytes": reserved, **times}


def test_pauses_as_a_table_and_as_a_picture(archive, tmp_path, capsys):
    (path,) = archive.glob("*/*.jsonl")
    picture = tmp_path / "latency.svg"
    assert main(["report", "--results", str(archive), "--latencies", str(picture)]) == 2
    assert "--double" in capsys.readouterr().err
    first = json.loads(path.read_text().splitlines()[0]) | {"name": "bench-updates"}
    doubled = [_doubled("fast", 1.0, 2.5, 4.0), _doubled("rare", 1.0, 2.0, 4.5), _doubled("fast", 1.0, 3.0, 9.0, 8)]
    lines = [first, {"kind": "build", "drawn": 20_000}, *doubled, {"kind": "end"}]
    path.with_name("updates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", "--results", str(archive), "--only", "pauses"]) == 0
    rows = [
        line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("| 3 of 1k onto 20k")
    ]
    assert [(row[0], row[1], *row[5:7], row[7].strip(" |")) for row in rows] == [
        ("not reserved", "fast", "2.50", "4.00", "both"),
        ("not reserved", "rare", "2.00", "4.50", "p99"),
        ("reserved", "fast", "3.00", "9.00", "neither"),
    ]
    assert main(["report", "--results", str(archive), "--latencies", str(picture)]) == 0
    drawn = picture.read_bytes()
    assert b"fast, median 1 ms" in drawn and b"rare, median 1 ms" in drawn
    assert drawn.count(b"fast") == 1  # not again with memory reserved
    assert main(["report", "--results", str(archive), "--latencies", str(picture)]) == 0
    assert picture.read_bytes() == drawn
    assert main(["report", "--results", str(archive), "--latencies", str(tmp_path / "no" / "where.svg")]) == 2


def test_times_of_algorithms_by_gpus(archive, tmp_path, capsys):
    (path,) = archive.glob("*/*.jsonl")
    first = json.loads(path.read_text().splitlines()[0]) | {"name": "scaling"}
    points = {1: {"BFS": 2.0, "Louvain": 30.0}, 2: {"BFS": 1.0, "Louvain": 40.25, "Leiden": 50.0}}
    lines = [first]
    for workers, times in points.items():
        figures = {name: {"p50_ms": time} for name, time in times.items()}
        lines.append({"kind": "scaling", "scaling": "strong", "workers": workers, "scale": 10, "algorithms": figures})
    lines += [{"kind": "losses", "pairs": [[1, 2, "Louvain"]]}, {"kind": "end"}]
    path.with_name("scaling.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # A newer run on a grid is no run of RMAT graphs.
    newer = {**first, "time": "9" + first["time"], "parameters": {**first["parameters"], "shape": "grid"}}
    path.with_name("grid.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [newer, *lines[1:2], lines[-1]])
    )
    assert main(["report", "--results", str(archive), "--only", "gpus"]) == 0
    printed = capsys.readouterr().out
    assert "| ms, RMAT scale 10, 16.4k drawn arcs | 1 GPU | 2 GPUs |" in printed
    assert "| BFS | 2 | 1 |" in printed
    assert "| Louvain | 30 | 40.2 * |" in printed
    assert "| Leiden | no memory | 50 |" in printed
    # The same as a picture; the table of ingest has no row for such a run.
    drawn = tmp_path / "speedups.svg"
    assert main(["report", "--results", str(archive), "--speedups", str(drawn)]) == 0
    assert all(text in drawn.read_text() for text in ("BFS", "Louvain", "2 GPUs", "times as fast as on one GPU"))
    assert "Leiden" not in drawn.read_text()
    path.with_name("scaling.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines[:2], lines[-1]]))
    assert main(["report", "--results", str(archive), "--speedups", str(drawn)]) == 2
    assert main(["report", "--results", str(archive), "--only", "scaling"]) == 2


def test_the_quality_of_maintained_communities_is_a_percentage(tmp_path, capsys):
    options = ["--batches", "200", "--repeats", "2", "--kinds", "mixed", "--names", "bfs,leiden"]
    bench(tmp_path / "archive" / "some-cpu", "live", *options)
    capsys.readouterr()
    assert main(["report", "--results", str(tmp_path / "archive"), "--only", "bench-live"]) == 0
    heads, _, bfs, leiden = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert heads.endswith("| quality below a fresh run's | at most | fresh runs differ by |")
    assert bfs.endswith(" |  |  |  |") and leiden.count("% |") == 3
