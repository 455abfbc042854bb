"""The bar of a long call: drawn by a thread, in a terminal or a notebook, and nowhere else."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from mgraph import DynamicGraph, EdgeBatch
from mgraph.client.batches.updates import Updates
from mgraph.client.reports import progress
from mgraph.client.reports.progress import Done, Notebook, Terminal, shown


class Noted:
    """A display that notes what it is told."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, Done]] = []
        self.ended = 0

    def draw(self, what: str, now: Done) -> None:
        self.drawn.append((what, now))

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def noted(monkeypatch):
    display = Noted()
    monkeypatch.setattr(progress, "_display", lambda: lambda: display)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)
    return display


def slow(n: int):
    for i in range(n):
        time.sleep(0.02)
        yield [i], [i + 1]


def test_a_stream_says_how_far_it_is(noted):
    with DynamicGraph(n_vertices=50) as graph:
        graph.stream(slow(20))
        assert noted.ended == 1
        assert all(what == "stream" and now.total is None for what, now in noted.drawn)
        done = [now.done for _, now in noted.drawn]
        assert 0 < done[-1] <= 20
        assert done == sorted(done)
        assert "edges/s" in noted.drawn[-1][1].words
        noted.drawn.clear()
        batch = EdgeBatch(range(40), range(1, 41))
        graph.stream(batch, 1, on_batch=lambda report: time.sleep(0.01))
        assert {now.total for _, now in noted.drawn} == {40}
        noted.drawn.clear()
        graph.stream(slow(10), progress=False)
        assert noted.drawn == []


def test_an_ingest_says_how_many_steps_are_committed(noted):
    def source(rank, size, step):
        time.sleep(0.1)
        return [step], [step + 1]

    with DynamicGraph(n_vertices=50) as graph:
        graph.insert([0], [1])
        graph.ingest(source, steps=6)
        done = [now.done for _, now in noted.drawn]
        assert done == sorted(done)
        assert 0 < done[-1] <= 6
        assert noted.drawn[-1] == ("ingest", Done(done[-1], None, f"{done[-1]} steps committed"))


def test_a_build_shows_its_stages(noted, monkeypatch):
    real = Updates.apply
    monkeypatch.setattr(Updates, "apply", lambda *args, **how: time.sleep(0.2) or real(*args, **how))
    with DynamicGraph.from_pandas(pd.DataFrame({"source": [0, 1], "target": [1, 2]})):
        # a slow machine shows what comes before it, too
        assert ("from_pandas", "inserting 2 edges") in {(what, now.words) for what, now in noted.drawn}
    assert noted.ended == 1


def test_a_large_batch_is_shown(noted, monkeypatch):
    real = Updates._apply
    monkeypatch.setattr("mgraph.client.batches.updates.LARGE", 2)
    monkeypatch.setattr(Updates, "_apply", lambda *args: time.sleep(0.2) or real(*args))
    with DynamicGraph(n_vertices=9) as graph:
        graph.insert([0], [1])
        assert noted.drawn == []
        graph.insert([0, 1], [1, 2])
    assert noted.drawn[-1] == ("update", Done(0, None, "2 edges"))


def test_of_two_blocks_the_inner_one_is_shown(noted):
    with shown("outer", lambda: Done(1, 2, "outer")):
        with shown("inner", lambda: Done(3, 4, "inner")):
            time.sleep(0.2)
        assert noted.drawn[-1] == ("outer", Done(3, 4, "inner"))
        time.sleep(0.2)
    assert noted.drawn[-1] == ("outer", Done(1, 2, "outer"))
    assert noted.ended == 1


def test_an_error_ends_the_bar_and_short_calls_show_none(noted, monkeypatch):
    with pytest.raises(OSError, match="broke"), shown("call", lambda: Done(0, None, "")):
        time.sleep(0.3)
        raise OSError("broke")
    assert noted.ended == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "mgraph-progress"]
    noted.drawn.clear()
    monkeypatch.setattr(progress, "QUIET_SECONDS", 5)
    with shown("call", lambda: Done(0, None, "")):
        pass
    assert noted.drawn == []


def test_nothing_is_shown_without_a_terminal_or_a_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False))
    assert progress._display() is None
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=len))
    assert progress._display() is Terminal
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    with shown("call", lambda: Done(0, None, "")):  # Rich is not installed
        time.sleep(0.1)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    assert progress._display() is Notebook


def test_the_terminal_has_a_bar_with_words(capsys, monkeypatch):
    pytest.importorskip("rich")
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    bar = Terminal()
    bar.draw("stream", Done(3, 10, "3 batches"))
    bar._progress.refresh()
    (task,) = bar._progress.tasks
    assert (task.completed, task.total, task.percentage) == (3, 10, 30)
    bar.draw("stream", Done(4, None, "4 batches"))
    assert (task.completed, task.total) == (4, None)
    bar.end()
    assert "3 batches" in capsys.readouterr().err


def test_a_notebook_updates_one_line(monkeypatch):
    pytest.importorskip("IPython")
    import IPython.display

    lines = []
    handle = SimpleNamespace(update=lambda line: lines.append(line.data))
    monkeypatch.setattr(IPython.display, "display", lambda line, display_id: lines.append(line.data) or handle)
    here = Notebook()
    here.draw("stream", Done(1, None, "<b>"))
    here.draw("stream", Done(2, 4, "2 batches"))
    here.end()
    assert lines == [
        "<div>stream: &lt;b&gt;</div>",
        '<div>stream: <progress value="2" max="4"></progress> 2 batches</div>',
        "",
    ]
