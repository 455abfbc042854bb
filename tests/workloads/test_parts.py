"""Records, the closing table, the plot and the interrupt handler, each alone."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
from rich.console import Console

from mgraph.errors import InvalidOption
from workloads.results import record as record_module
from workloads.results.record import Record
from workloads.stream.display import Display, closing_table, updates_per_second
from workloads.stream.interrupt import Interrupt
from workloads.stream.plot import save_plot


def a_record(folder=None):
    record = Record("test", folder, {"batch": 5})
    counts = {"inserted": 8, "updated": 1, "deleted": 1, "missing": 0}
    record.add("build", operations=100, seconds=0.5, edges=90, consumed=100, epoch=1, **counts)
    for epoch in (2, 3):
        record.add("batch", operations=10, seconds=0.02, edges=97 + epoch, consumed=100, epoch=epoch, **counts)
    record.add("analytic", name="bfs", seconds=0.004, epoch=3, says="7 reached")
    return record


def test_lines_are_written_as_they_come(tmp_path):
    record = a_record(tmp_path / "new" / "folder")
    written = [json.loads(line) for line in record.path.read_text().splitlines()]
    assert written == record.lines
    assert [line["kind"] for line in written] == ["run", "build", "batch", "batch", "analytic"]
    assert written[0]["parameters"] == {"batch": 5}


def test_the_commit_is_that_of_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record_module._commit() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.hooksPath=/dev/null"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True, timeout=30)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=30).stdout
    assert record_module._commit() == head.strip()
    (tmp_path / "file").write_text("2")
    assert record_module._commit() == head.strip() + "-dirty"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="cannot write"):
        Record("test", tmp_path / "file", {})


def test_rate_counts_the_time_of_updates_alone():
    record = a_record()
    assert updates_per_second(record.of("batch")) == pytest.approx(20 / 0.04)
    assert updates_per_second([]) == 0


def test_closing_table():
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 the console keeps it
    console.print(closing_table(a_record(), "title"))
    console.file.close()
    text = console.export_text()
    rows = [" ".join(line.split()) for line in text.replace("│", " ").splitlines()]
    for row in (
        "inserted 16",
        "deleted 2",
        "edges at the end 100 (epoch 3)",
        "updates/s 500",
        "bfs, last 7 reached (epoch 3)",
    ):
        assert row in rows, text


@pytest.mark.parametrize(
    "kinds",
    [*(pytest.param(kinds, marks=pytest.mark.slow) for kinds in ({"analytic"}, {"batch"})), {"batch", "analytic"}],
)
def test_plot(tmp_path, kinds):
    record = a_record()
    record.lines = [line for line in record.lines if line["kind"] in kinds]
    save_plot(record, tmp_path / "plot.png", "title")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def _shown(terminal):
    with open(os.devnull, "w") as sink:
        console = Console(width=120, record=True, file=sink, force_terminal=terminal)
        with Display(console, 10) as display:
            display.batch({"epoch": 1, "edges": 5, "consumed": 5}, 1e6)
            display.analytic({"name": "bfs", "seconds": 0.001, "says": "3 reached", "epoch": 1})
            display.batch({"epoch": 2, "edges": 9, "consumed": 10}, 2e6)
        return console.export_text()


def test_plain_lines_away_from_a_terminal():
    lines = _shown(terminal=False).splitlines()
    assert lines == ["epoch 1  5 edges  1,000,000 updates/s", "epoch 1  bfs 1.0 ms: 3 reached"]  # one rate a second


def test_live_line_on_a_terminal():
    text = _shown(terminal=True)
    assert "100%" in text
    assert "epoch 2  9 edges  2,000,000 updates/s  bfs 1.0 ms: 3 reached" in text


def test_first_interrupt_is_noted_and_the_second_raises():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert interrupt.asked
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_leaves_other_threads_alone():
    seen = []

    def work():
        with Interrupt() as interrupt:
            seen.append(interrupt.asked)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before
