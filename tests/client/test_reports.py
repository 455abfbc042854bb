"""What users are told of batches and of how a graph lies, from what ranks answered."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph import UpdateReport
from mgraph.batch import TOLD
from mgraph.client.reports.report import as_html, as_text, balance_of, of_batch, of_steps
from mgraph.protocol import ShardState


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_counts_of_a_batch_are_those_of_all_ranks(size):
    rng = fresh_rng()
    counts = rng.integers(0, 1 << 40, (size, len(TOLD)))
    answers = [{**dict(zip(TOLD, row, strict=True)), "epoch": 7} for row in counts]
    report = of_batch(answers, 0.5)
    assert report == UpdateReport(**dict(zip(TOLD, counts.sum(axis=0).tolist(), strict=True)), epoch=7, seconds=0.5)
    assert type(report.inserted) is int  # what JSON takes


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_the_steps_of_an_ingest_are_epochs_that_end_with_the_last(size, steps):
    rng = fresh_rng()
    counts, times = rng.integers(0, 1 << 40, (size, steps, 4)), rng.random((size, steps))
    by_time, epochs = rng.integers(0, 1 << 40, (size, steps, 2)), list(range(11 - steps, 11))
    same = {"before": 10 - steps, "epochs": epochs}
    columns = zip(counts, by_time, times, strict=True)
    answers = [{"counts": c.reshape(-1), "by_time": b.reshape(-1), "times": t, **same} for c, b, t in columns]
    reports = of_steps(answers)
    assert [report.epoch for report in reports] == list(range(11 - steps, 11))
    for step, report in enumerate(reports):
        found = (report.inserted, report.updated, report.deleted, report.missing)
        assert found == tuple(counts[:, step].sum(axis=0).tolist())
        assert (report.late, report.expired) == tuple(by_time[:, step].sum(axis=0).tolist())
        assert report.seconds == times[:, step].max()  # the slowest rank's


def state(vertices: int = 10, arcs: int = 0, **given: float) -> ShardState:
    return ShardState(lo=0, hi=vertices, arcs=arcs, edges=given.pop("edges", arcs), **given)


@pytest.mark.parametrize(
    ("arcs", "ratio"), [([0], 1), ([0, 0], 1), ([5], 1), ([5, 5], 1), ([6, 0, 0], 3), ([3, 1], 1.5)], ids=str
)
def test_the_ratio_of_a_balance_is_the_most_arcs_over_the_mean(arcs, ratio):
    balance = balance_of([str(rank) for rank in range(len(arcs))], [state(arcs=n) for n in arcs])
    assert balance.ratio == ratio
    assert f"most arcs of a worker over the mean: {ratio:.2f}" in repr(balance)


def test_the_table_of_a_balance_counts_the_arcs_that_its_ratio_counts():
    balance = balance_of(["a", "b"], [state(arcs=60, edges=10), state(arcs=20, edges=40)])
    title, heads, first, second = repr(balance).splitlines()
    assert title.endswith(": 1.50")
    at = heads.index("arcs / mean"), heads.index("arcs / mean") + len("arcs / mean")
    assert [row[slice(*at)].strip() for row in (first, second)] == ["1.50", "0.50"]


def test_a_balance_says_what_each_rank_said():
    states = [state(7, 30, edges=20, nbytes=1 << 20, seconds=0.25), state(3, 10, edges=10)]
    first, second = balance_of(["tcp://a:1", "tcp://b:2"], states).workers
    assert (first.rank, first.address, first.vertices, first.edges, first.arcs) == (0, "tcp://a:1", 7, 20, 30)
    assert (first.nbytes, first.seconds) == (1 << 20, 0.25)
    assert (second.rank, second.address, second.seconds) == (1, "tcp://b:2", 0.0)
    with pytest.raises(ValueError):
        balance_of(["tcp://a:1"], states)


def test_a_table_has_a_line_for_each_worker_and_no_ratio_without_edges():
    loads = balance_of(["tcp://a:1", "tcp://b:22"], [state(1234567, 30, edges=3_000, nbytes=1 << 20), state()]).workers
    title, head, *lines = as_text("Graph <g>", loads).splitlines()
    assert title == "Graph <g>"
    assert head.split("  ")[-1].strip() == "last batch"
    assert [line.split() for line in lines] == [
        ["0", "tcp://a:1", "1,234,567", "3,000", "2.00", "1.00", "MiB", "-"],
        ["1", "tcp://b:22", "10", "0", "0.00", "0", "B", "-"],
    ]
    assert len({len(line) for line in [head, *lines]}) == 1  # right-aligned columns
    html = as_html("Graph <g>", loads)
    assert html.startswith("<p>Graph &lt;g&gt;</p><table>")
    assert html.count("<tr>") == 3
    nothing = as_text("empty", balance_of(["a"], [state()]).workers)
    assert nothing.splitlines()[-1].split() == ["0", "a", "10", "0", "-", "0", "B", "-"]


def test_seconds_of_the_last_batch_are_shown_where_there_was_one():
    loads = balance_of(["a"], [state(seconds=0.0123)]).workers
    assert "12.30 ms" in as_text("", loads)
    assert np.isfinite(loads[0].seconds)
