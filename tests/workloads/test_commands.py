"""The commands end to end, on real workers, and what they say of a mistake."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from interrupts import assert_quiet
from patience import patience

from workloads.__main__ import main
from workloads.demo import RELEASES

ROOT = Path(__file__).parents[2]
EDGES = "".join(f"{i % 50} {(i * 7 + 3) % 50}\n" for i in range(1000))


@pytest.fixture
def edge_file(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text(EDGES)
    return path


def records(folder):
    (path,) = folder.glob("*.jsonl")
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def test_stream_end_to_end(edge_file, tmp_path, capsys):
    options = ["--workers", "2", "--device", "cpu", "--batch", "100", "--initial", "0.3", "--window", "200"]
    options += ["--run", "bfs,pagerank", "--every", "3", "--source", "0", "--out", str(tmp_path / "out")]
    assert main(["stream", "--data", str(edge_file), *options]) == 0
    path, lines = records(tmp_path / "out")
    first, last = lines[0], lines[-1]
    assert (first["kind"], first["parameters"]["window"]) == ("run", 200)
    assert {"numpy", "dask", "distributed"} <= first["versions"].keys()
    assert first["hardware"]["cores"] >= 1
    batches = [line for line in lines if line["kind"] == "batch"]
    live = {tuple(map(int, line.split())) for line in EDGES.splitlines()[-200:]}
    assert batches[-1]["edges"] == len(live)
    assert [line["epoch"] for line in batches] == list(range(2, 9))
    for line in batches:
        changes = line["inserted"] + line["updated"] + line["deleted"] + line["missing"]
        assert 0 < changes <= line["operations"]
    assert [line["name"] for line in lines if line["kind"] == "analytic"] == ["bfs", "pagerank"] * 3
    assert (last["kind"], last["interrupted"], last["batches"]) == ("summary", False, 7)
    seconds = sum(line["seconds"] for line in batches)
    assert last["updates_per_second"] == pytest.approx(sum(line["operations"] for line in batches) / seconds)
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "updates/s" in out
    assert "edges at the end" in out


@pytest.mark.slow
def test_generated_undirected_weighted(tmp_path, capsys):
    options = ["--workers", "1", "--device", "cpu", "--batch", "500", "--initial", "0"]
    assert main(["stream", "--data", "rmat:7:8", "--undirected", *options, "--out", str(tmp_path)]) == 0
    from workloads.inputs.generators import from_spec

    stream = from_spec("rmat:7:8").stream()
    pairs = np.sort(np.stack([stream.src, stream.dst]), axis=0)
    batches = [line for line in records(tmp_path)[1] if line["kind"] == "batch"]
    assert batches[-1]["edges"] == len(np.unique(pairs, axis=1).T)
    assert len(batches) == 3
    (tmp_path / "w.csv").write_text("src,dst,weight\n0,1,.5\n1,2,1.5\n")
    assert main(["stream", "--data", str(tmp_path / "w.csv"), "--workers", "1", "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--data", "nothing.txt"], "nothing.txt: there is no such file on this machine"),
        (["--data", "rmat:99:1"], "scale is 99"),
        (["--data", "FILE", "--batch", "0"], "--batch is 0"),
        (["--data", "FILE", "--window", "-1"], "--window is -1"),
        (["--data", "FILE", "--workers", "0"], "--workers is 0"),
        (["--data", "FILE", "--initial", "1.5"], "--initial is 1.5"),
        (["--data", "FILE", "--initial", "nan"], "--initial is nan"),
        (["--data", "FILE", "--every", "0"], "--every is 0"),
        (["--data", "FILE", "--run", "bfs,colouring"], "colouring"),
        (["--data", "FILE", "--source", "50"], "50"),
        (["--data", "FILE", "--source", "-1"], "--source is -1"),
        (["--data", "FILE", "--columns", "src,dst,x"], "'x'"),
        (["--data", "FILE", "--out", "FILE/under"], "cannot write"),
        (["--data", "FILE", "--structure", "treap", "--workers", "1", "--device", "cpu"], "treap"),
    ],
)
def test_a_mistake_is_one_line(edge_file, capsys, options, named):
    status = main(["stream", *(word.replace("FILE", str(edge_file)) for word in options)])
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert named in said


def test_no_edges_to_stream(tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("# nothing\n")
    assert main(["stream", "--data", str(tmp_path / "empty.txt")]) == 2
    assert "no edges" in capsys.readouterr().err


def test_demo(tmp_path, capsys):
    names = np.array(["libc6", "bash", "dpkg", "perl"])
    np.savez(
        tmp_path / "small.npz",
        src=[1, 2, 3, 3, 1], dst=[0, 1, 2, 0, 0], t=[0, 0, 1, 1, 2], op=[1, 1, 1, 1, -1], names=names,
    )  # fmt: skip
    assert (
        main(["demo", "--data", str(tmp_path / "small.npz"), "--workers", "2", "--device", "cpu", "--batch", "2"]) == 0
    )
    out = capsys.readouterr().out
    blocks = [out.index(title) for title in ("1. What goes in", "2. How fast", "3. What came out")]
    assert blocks == sorted(blocks)
    assert "4 Debian packages" not in out
    assert "A graph of 4 packages of" in out
    speed = out[blocks[1] : blocks[2]].splitlines()
    edges = {line.split()[0]: line.split()[1:4] for line in speed if line.split()[:1] and line.split()[0] in RELEASES}
    assert edges == {"bookworm": ["2", "0", "2"], "trixie": ["2", "0", "4"], "sid": ["0", "1", "3"]}
    ranked = [line.split()[1] for line in out[blocks[2] :].splitlines() if "in bookworm: place" in line]
    assert sorted(ranked) == ["bash", "dpkg", "libc6", "perl"]
    need = out[out.index("How many packages need libc6") :].splitlines()
    reached = {line.split()[0]: line.split()[1:5] for line in need if line.split()[:1] and line.split()[0] in RELEASES}
    assert reached == {"bookworm": ["1", "2", "2", "2"], "trixie": ["2", "3", "3", "3"], "sid": ["1", "1", "1", "1"]}


def test_help_needs_no_package_that_the_extra_does_not_install():
    """The extra `commands` installs Dask, Matplotlib and Rich; commands import others when they run.

    A command imports no other either: the demo's environment has no Matplotlib.
    """
    others = ["networkx", "scipy", "pandas", "polars", "pyarrow", "nbformat", "nbclient", "bokeh", "fsspec", "cupy"]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({[*others, "matplotlib"]}))
from workloads.__main__ import main
for words in (["demo", "--help"], ["--help"], ["bench", "--help"], ["bench", "networkx", "--help"]):
    if words[0] != "demo":
        sys.modules.pop("matplotlib", None)
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, done.stderr
    assert "--target" in done.stdout
    assert done.stdout.count("usage: python -m workloads") == 4


def test_demo_wants_times_and_the_target(tmp_path, capsys):
    np.savez(tmp_path / "g.npz", src=[0], dst=[1], names=["a", "b"])
    assert main(["demo", "--data", str(tmp_path / "g.npz")]) == 2
    assert "libc6" in capsys.readouterr().err
    assert main(["demo", "--data", str(tmp_path / "g.npz"), "--target", "a"]) == 2
    assert "no times" in capsys.readouterr().err


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "stream" in out
    assert "demo" in out


def _read_until(process, word):
    seen = []
    for line in process.stdout:
        seen.append(line)
        if word in line:
            return seen
    raise AssertionError((seen, process.stderr.read()))


def _group(leader):
    """The commands of a process group that still run."""
    left = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, group = rest.split()[:3]
        if int(group) == leader and state != "Z":
            left.append(name)
    return left


def _leave(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    process.stdout.close()
    process.stderr.close()


def test_ctrl_c_ends_a_stream_with_what_was_measured(tmp_path):
    command = [sys.executable, "-u", "-m", "workloads", "stream", "--data", "rmat:14:16", "--device", "cpu"]
    command += ["--workers", "2", "--batch", "50", "--initial", "0.1", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        _read_until(process, "updates/s")  # the first batch was streamed
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        out, err = process.communicate(timeout=patience(60))
        assert process.returncode == 0, (out, err)
        assert "stopped by Ctrl-C" in out
        assert "time in updates" in out
        assert_quiet(err)
        lines = records(tmp_path)[1]
        assert lines[-1]["interrupted"] is True
        assert 1 <= lines[-1]["batches"] < 4718
        end = time.monotonic() + patience(10)
        while (left := _group(process.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        assert left == []
    finally:
        _leave(process)
