"""A worker dies, or stops, in every stage of a batch and of an algorithm, by the same rules for all of them.

In time there is a `WorkerLost` that names the rank; before the vote the graph is at the epoch before, after it the
graph is lost and says so; the survivor is clean and takes another graph.
"""

from __future__ import annotations

import os
import signal
from itertools import product

import pytest
from faults import before, hit
from graph_clusters import assert_clean
from test_failures import N, batch, raises_in_time

from mgraph import DynamicGraph, GraphLost, WorkerLost
from mgraph.client.batches import updates

#: where a worker is when it is hit; the client is what deals
STAGES = ("sort", "exchange", "prepare", "vote", "commit", "superstep", "gather")


def hit_while_dealing(monkeypatch: pytest.MonkeyPatch, pid: int, number: int) -> None:
    """Have a process get a signal when this one deals a batch."""
    quick = updates.deal
    monkeypatch.setattr(updates, "deal", lambda *args, **kwargs: (os.kill(pid, number), quick(*args, **kwargs))[1])


KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
QUICK = ("vote", "killed")  #: make test leaves out the others


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        pytest.param(stage, kind, marks=() if (stage, kind) == QUICK else pytest.mark.slow)
        for stage, kind in product(["deal", *STAGES], KINDS)
    ],
)
def test_a_worker_during_the(own_client, monkeypatch, stage, kind):
    number = KINDS[kind]
    monkeypatch.setattr(updates, "WHOLE", 0)  # smaller batches go whole to every rank, and no rank to another
    with DynamicGraph(own_client, N, patience=4) as graph:
        graph.update(batch())
        distances = graph.bfs(0)
        survivor, victim = graph.workers
        if stage == "deal":
            hit_while_dealing(monkeypatch, own_client.run(os.getpid, workers=[victim])[victim], number)
        else:
            own_client.run(before, stage, hit, number, workers=[victim])
        with raises_in_time(WorkerLost, f"rank 1, the worker at {victim}"):
            if stage == "superstep":
                graph.bfs(0)
            elif stage == "gather":
                distances.to_numpy()
            else:
                graph.update(batch(1))
        assert graph.epoch == 1
        if stage == "commit":
            with raises_in_time(GraphLost, "the last epoch acknowledged by all is 1", limit=1.5):
                graph.degrees([1])
        else:
            with raises_in_time(WorkerLost, "rank 1", limit=1.5):
                graph.degrees([1])
    monkeypatch.undo()
    assert_clean(own_client, [survivor])
    with DynamicGraph(own_client, N, workers=[survivor]) as another:
        assert another.update(batch()).epoch == 1
