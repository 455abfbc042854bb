"""Names of communities in a store: they come back after a close, and after a crash, against the slow model."""

from __future__ import annotations

import base64
import copy
import io
import os
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from community_names import NamesModel, parts
from graph_clusters import assert_clean, processes
from plain_graph import fresh_rng
from test_live_communities import events_since, payments

from mgraph import DynamicGraph, StoreError
from mgraph.errors import CapacityError
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.results import remembered
from mgraph.worker.vertices.removal import Removal

TERM = 1 << 32  #: names of each term after a crash
LOST = ("lost", None, None, None, None)
TRIANGLES = ["ann", "bob", "cid", "dan", "eva", "fay"], ["bob", "cid", "ann", "eva", "fay", "dan"]
OPTIONS: dict[str, Any] = {"keys": "string", "directed": False, "drop_isolated": True, "device": "cpu"}


def names_of(graph: DynamicGraph) -> dict[str, int]:
    return graph.maintain("leiden").names().to_series().to_dict()


class Twin:
    """A stored graph and the slow model of its names, with the model as it was last saved.

    Attributes
    ----------
    term : int
        How often the store was opened.
    lost : bool
        True if reads after `saved` may have been lost.
    """

    def __init__(self, path: Path, place: Any = None, **options: Any) -> None:
        self.path, self.term = path, 1
        self.graph = DynamicGraph(place, **options, device="cpu", store=path)
        self.live: Any = None
        self.model, self.read = NamesModel(), -1
        self.saved, self.lost = (copy.deepcopy(self.model), self.read), False
        self.resumed = False

    def keep(self, keys: list[int]) -> None:
        for model in (self.model, self.saved[0]):
            if model.members is not None:
                model.keep(keys)

    def save(self) -> None:
        self.saved = copy.deepcopy(self.model), self.read

    def check(self, method: str, kinds: set[str]) -> None:
        """Read, and compare names and changes since the last read that is not lost."""
        self.live = self.live or self.graph.maintain(method)
        keys, labels = self.graph.vertices().tolist(), self.live.result().to_numpy()
        if self.resumed and self.read == self.live.epoch:
            assert {key: self.model.names[key] for key in keys} == self.live.names().to_series().to_dict()
        want = self.model.read([frozenset(keys[v] for v in part) for part in parts(labels)], keys.index)
        assert self.live.names().to_series().to_dict() == self.model.names
        if 0 <= self.read < self.live.epoch:
            want = [LOST, *want] if self.lost else want
            assert events_since(self.live, self.read) == want
            kinds.update(event[0] for event in want)
        self.read, self.lost, self.resumed = self.live.epoch, False, False

    def end(self, crash: bool, place: Any) -> None:
        """Close the graph, or leave it, and open its store at another place."""
        if crash:
            new = self.path.with_name(f"{self.path.name}x")
            shutil.copytree(self.path, new, ignore=shutil.ignore_patterns("*.tmp"))
            self.path = new
            (self.model, self.read), self.lost = copy.deepcopy(self.saved), True
            self.model.next = max(self.model.next, self.term * TERM)
        self.graph.close()
        if not crash:
            self.save()
        self.graph, self.live = DynamicGraph.open(*([] if place is None else [place]), self.path, device="cpu"), None
        self.term, self.resumed = self.term + 1, True


@pytest.mark.parametrize("method", ["leiden", pytest.param("louvain", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "where",
    ["here and on workers", *(pytest.param(where, marks=pytest.mark.slow) for where in ("here", "on local disks"))],
)
def test_random_lives(request, tmp_path, method, where):
    """Accounts leave and come back, between reads, snapshots, closes and crashes."""
    rng, kinds = fresh_rng(), set[str]()
    client = None if where == "here" else request.getfixturevalue("client")
    places = [client] if where == "on local disks" else [None, client]
    steps = {"here": 60, "on local disks": 30}.get(where, 12)
    options: dict[str, Any] = {"keys": "int64", "window": 50 * steps, "drop_isolated": True, "directed": False}
    options |= {"disks": "local"} if where == "on local disks" else {}
    twin = Twin(tmp_path / "store", places[0], **options, weighted=True)
    acts = rng.choice(["read", "snapshot", "close", "crash", "go on"], steps, p=[0.4, 0.15, 0.1, 0.15, 0.2])
    acts[-5:] = ["read", "snapshot", "go on", "read", "crash"]  # however few steps there are, a read is lost
    for step, act in enumerate(acts):
        twin.graph.insert(*payments(rng, step))
        twin.keep(twin.graph.vertices().tolist())
        if act == "read":
            twin.check(method, kinds)
        elif act == "snapshot":
            twin.graph.snapshot()
            twin.save()
        elif act != "go on":
            twin.end(act == "crash", places[int(rng.integers(len(places)))])
    twin.check(method, kinds)
    twin.graph.close()
    print(kinds)
    assert {"grown", "shrunk", "died"} <= kinds and "lost" in kinds


def test_a_graph_that_did_not_change_has_the_same_communities(tmp_path, client):
    """Nothing is computed anew, whatever the order of the vertices and the number of workers."""
    rng = fresh_rng()
    src, dst = rng.integers(0, 300, (2, 1500))
    with DynamicGraph(None, 300, directed=False, store=tmp_path / "store") as graph:
        graph.insert(src[:1470], dst[:1470])
        live = graph.maintain("leiden", resolution=2.0)
        graph.insert(src[1470:], dst[1470:])
        labels, names = live.result().to_numpy(), live.names().to_numpy()
        fresh = graph.leiden(resolution=2.0).to_numpy()
    assert (labels != fresh).any()
    for place in ([], [client]):
        with DynamicGraph.open(*place, tmp_path / "store", order="degree") as graph:
            live = graph.maintain("leiden", resolution=2.0)
            np.testing.assert_array_equal(live.result().to_numpy(), labels)
            np.testing.assert_array_equal(live.names().to_numpy(), names)
            other = graph.maintain("leiden", resolution=1.0)
            assert other.names().to_numpy().min() == 0
            other.close()
    assert_clean(client)


def test_results_that_end_are_remembered_up_to_a_number(tmp_path):
    with DynamicGraph(store=tmp_path / "store", **OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        for resolution in range(remembered.MOST + 1):
            graph.maintain("leiden", resolution=resolution / 100).close()
        graph.insert(["gus"], ["hal"])
        assert graph.maintain("leiden", resolution=0.01).names().to_series()["ann"] == 0
        assert graph.maintain("leiden", resolution=0.0).names().to_series()["ann"] > 0  # forgotten, and not again
    with DynamicGraph(**OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        graph.maintain("leiden").close()
        graph.insert(["gus"], ["hal"])
        assert names_of(graph) == dict.fromkeys(["ann", "bob", "cid"], 0) | dict.fromkeys(
            ["dan", "eva", "fay"], 1
        ) | dict.fromkeys(["gus", "hal"], 2)


def test_two_results_of_the_same_method_save_the_names_of_the_older(tmp_path):
    with DynamicGraph(store=tmp_path / "store", **OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        first = graph.maintain("leiden")
        graph.insert(["gus", "gus"], ["hal", "ian"])
        second = graph.maintain("leiden")
        assert first.names().to_series()["gus"] == 2
        second.close()
        graph.insert(["x"], ["y"])
        assert first.names().to_series()["x"] == 3
    with DynamicGraph.open(tmp_path / "store") as graph:
        assert names_of(graph)["gus"] == 2


def test_a_saved_graph_has_its_names(tmp_path):
    with DynamicGraph(**OPTIONS) as graph:
        graph.insert(["y"], ["z"])
        live = graph.maintain("leiden")
        graph.delete(["y"], ["z"])
        live.result()
        graph.insert(*TRIANGLES)
        names = live.names().to_series().to_dict()
        assert set(names.values()) == {1, 2}
        graph.save(tmp_path / "saved")
    with DynamicGraph.load(tmp_path / "saved") as graph:
        live = graph.maintain("leiden")
        assert live.names().to_series().to_dict() == names
        graph.insert(["y"], ["z"])
        assert live.names().to_series()["y"] == 3
        assert events_since(live, 3) == [("born", 3, None, 0, 2)]


def test_an_earlier_epoch_has_the_names_of_its_snapshot(tmp_path):
    with DynamicGraph(store=tmp_path / "store", **OPTIONS, retain=0) as graph:
        graph.insert(*TRIANGLES)
        live = graph.maintain("leiden")
        graph.insert(["gus"], ["hal"])
        live.result()
        graph.snapshot()
        graph.delete(["ann", "bob", "cid"], ["bob", "cid", "ann"])
        live.result()
        with graph.at(2) as past:
            assert names_of(past) == dict.fromkeys(["ann", "bob", "cid"], 0) | dict.fromkeys(
                ["dan", "eva", "fay"], 1
            ) | dict.fromkeys(["gus", "hal"], 2)
    with DynamicGraph.open(tmp_path / "store", epoch=1) as past:
        assert set(names_of(past).values()) == {0, 1}


def test_a_snapshot_that_begins_while_vertices_leave(tmp_path, monkeypatch):
    """The names are those of the vertices that stay."""
    decide = Ballot.decide

    def with_snapshot(self: Ballot, change: Any, settle: bool = True) -> None:
        decide(self, change, settle)
        if isinstance(change, Removal) and self.log is not None:
            self.log.snapshot()

    monkeypatch.setattr(Ballot, "decide", with_snapshot)
    with DynamicGraph(store=tmp_path / "store", **OPTIONS, retain=0) as graph:
        graph.insert(*TRIANGLES)
        live = graph.maintain("leiden")
        want = live.names().to_series().to_dict()
        graph.delete(["ann", "ann"], ["bob", "cid"])
        while not graph.store.snapshots:
            pass
        shutil.copytree(tmp_path / "store", tmp_path / "crash", ignore=shutil.ignore_patterns("*.tmp"))
    want.pop("ann")
    with DynamicGraph.open(tmp_path / "crash") as graph:
        assert names_of(graph) == want


def test_vertices_that_come_and_leave_between_two_reads():
    with DynamicGraph(**OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        live = graph.maintain("leiden")
        want = live.names().to_series().to_dict()
        graph.insert(["x", "y"], ["y", "z"])
        graph.delete(["x"], ["y"])
        assert live.names().to_series().to_dict() == want | {"y": 2, "z": 2}


def test_a_removal_that_was_refused_leaves_the_names(tmp_path, monkeypatch):
    with DynamicGraph(store=tmp_path / "store", **OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        live = graph.maintain("leiden")
        want = live.names().to_series().to_dict()

        def failing(*args: Any) -> None:
            raise CapacityError("no memory")

        monkeypatch.setattr(Removal, "prepare", failing)
        with pytest.raises(CapacityError):
            graph.delete_vertices(["ann"])
        monkeypatch.undo()
        graph.snapshot()
        assert live.names().to_series().to_dict() == want
    with DynamicGraph.open(tmp_path / "store") as graph:
        assert names_of(graph) == want


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("where", ["closed", "snapshot"])
def test_damaged_names(tmp_path, where):
    store = tmp_path / "store"
    with DynamicGraph(store=store, **OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        names_of(graph)
        graph.snapshot()
    (path,) = store.glob("communities.bin" if where == "closed" else "snapshot-*/communities.bin")
    damaged(path)
    if where == "snapshot":
        with DynamicGraph.open(store) as graph:  # those of the close are newer
            assert min(names_of(graph).values()) == 0
        (store / "communities.bin").unlink()
    with pytest.raises(StoreError, match=rf"^{path} is damaged: .*repair=True"):
        DynamicGraph.open(store)
    with DynamicGraph.open(store, repair=True) as graph:
        assert graph.num_edges == 6
        names = names_of(graph)
        assert (min(names.values()) == 0) == (where == "closed")  # then the snapshot has them
    with DynamicGraph.open(store) as graph:
        assert names_of(graph) == names


def test_names_of_another_store(tmp_path):
    for name in ("a", "b"):
        with DynamicGraph(store=tmp_path / name, **OPTIONS) as graph:
            graph.insert(*TRIANGLES)
    shutil.copy(tmp_path / "a" / "communities.bin", tmp_path / "b")
    with pytest.raises(StoreError, match=r"b/communities\.bin is of another store"):
        DynamicGraph.open(tmp_path / "b")


def test_names_that_cannot_be_written_do_not_keep_a_graph_open(tmp_path, caplog):
    store = tmp_path / "store"
    with DynamicGraph(store=store, **OPTIONS) as graph:
        graph.insert(*TRIANGLES)
        names_of(graph)
        (store / "communities.bin.tmp").mkdir()
    assert "the names of communities were not saved" in caplog.text
    (store / "communities.bin.tmp").rmdir()
    with DynamicGraph.open(store) as graph:
        assert min(names_of(graph).values()) == TERM


#: a store of format 3, as the version before names were saved has left it
OLD = """
/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4E//BaddADmdCiLczPrJF0m/lM9ofC/CQ8hAQIXUtlFak2yHdjTfMmx2Nu5jFTDtx6oIUJU7NsWiqQCp4clI
ZcCbjNMSi3ukbxPOh4+g58kprCfWRNcKWDf579SYgEmRmBukBQo1VzR/zBcyKkR4EGOKBDUFbSZCSHeuGzpo6QILuYBBj6xv6d/DyO6QaZ4rpJvUngSY
QyBi2kyWFxy+nD+zw1HdXNkS5d7cNl/eQRS8NGqN9sEHVYj3rTQ8PAkxOxaaZQrC1iIK6Tco1bQdnvR8qBIqX+WR4FbuxLQN2QUV7wy9Hj6gxH1IBste
86Cg1gBrA+kvxlxfgzo39AnoOy1GHLzQV/BgdPKfSrvZDI7oYWbshHZpqGC1b1wOCGulI5M8u4pCKzkkFK4l7QA4YATqWD8toTbsY7+PB4jWiHOLCJMz
/qz4ZGAMKYmOLJTQ58mkNcKVus/bJEHa+CDfc+xnOQ6V7rlW2VTmjnFEUFtnBDSJ9KupMCLKxr+3mcQud0idKeG4xui6NBfnsC2Drk19/ZVdQUX8ksoC
A5ckXI1FoFN5+SxK6RphyttsjPgHjpqP3PNPEiUf0QA3xtjvLzljhePc6iXaVnHpUTbfQmj2Wf1uAtvfd2QymjAPH39myTloGykVRQHbbt4EepxECQqc
JZmC8qq+/otaoTRceih3FZee7TmQM2NqfbrMzTT8o3TxEUQyT9IYqwJYXGLeCLfjcr4cSmdLe3rNk1wKnhIhbuu8RR0wuansC+iJEsvqRJ48dUEYPjZf
cyagKk9ohtUIhCfsGalWPRPAR6Yq1rzS0yDpxokW3LsrgperILE11vrgSUARnQp+HOvSrplnr8DZjNpeWl+CvtwOteOxCmfVmG1ydaoPxYpUawjkq6Ti
dtRM/Lnr9GqpCgNVNwhJkQhdtLn3xwM8YeKqruVpDBTvsvblkoaRiR/t4c6MdY5KIUZIbUlEs29tknaJs/bAKcFSru8YEbtsdYTT3vov+5fJzqXthSD1
vCLblZmJqYVpXJ+yelcZy8xTJOYV/IeaVAplOFtHJQF/qrH8Up2oSMek3+NAO6N/mTKT3K5l1pyfRfXN2LQOR7jHZpdaK9OpwdS4c9VshSksMAqtjNwZ
OyoJbkx0oszKHQVCgzCzBk+jP820XU5lSKaQR9tDdzWq7F6SMBb2bKBhWSaJtwQniqSLuaWly0klvUlqmK6ecYWlva38VuTuO9V/3ihehnhU3alCCgKf
B1f3VvoZ8QSOvEBOuAWfyUspA1/hxyHmKDpjA+hI0L8RUivcVRKIcSjbj8krS5xW5d4X0ov+SJ/s/d+Vr9vucLg9mYDMzaJ/SOfydc2VOXbFNG8iE79r
me83Zqjha7/xqYy9tJhU29m9BiLMX6w3wqGkRx51Obd4E70DwNxkKYsv/fd/1KCZIi2bSXcduKiXO1/tubXs/gY4epnrcg+PVGHzTQFiSVfdMQqahisv
/WAJL5ce7YWK5815/COhgg7lJjHXVGKdbJEbvZgtV7EtyubOUGr6sYV06Lm8Jnqp0NUSjFgMFkDErzgCIPLAbaq5wtPd1W7qhKKFX0grBV76KWAgOg88
S5LdjYpPtYGKYfwJC+zatLsEGdzkXrJBL37MqnvGY1J+gPKnutAMvw3S1/LSFnxYscqp6hnpIyj5ipYTDJDYdFq8BarGuLxIq7WQg8cjbwaQ1Nff2p8o
CjuElSmWdZ72r6luPWuA9iXAiaRcvTWO7DSa6R32zWH5+0gH/ugoYGQtgWRvLfpneWaIcrieFgCuqw3xPnZbgVFRETkIuSSnaGykGOpx2IS+3ZGulHuC
oSltkRevPQcwLmukbXMVW5Ekxb0G8/X0C20CJ03d7VOqFcDF4VJmYgNtpmEQ87+d5o6ywL0+hwHXdacqeTzuqDGG+gDdGAD3FrVDUxR6V5OlVzHf2wAA
AGmnbZJICkhVAAHDC4CgAQDMU8MOscRn+wIAAAAABFla
"""


def test_a_store_of_the_format_before_names(tmp_path):
    """It opens, and goes on with names; those begin where no earlier term can have used them."""
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(OLD))) as archive:
        archive.extractall(tmp_path, filter="data")
    for names in ({TERM, TERM + 1}, {TERM, TERM + 1, TERM + 2}):
        with DynamicGraph.open(tmp_path / "store") as graph:
            assert set(graph.vertices()) >= {"ann", "bob", "cid", "eva", "fay", "gus"}
            live = graph.maintain("leiden")
            before = live.names().to_series().to_dict()
            assert before["ann"] == before["gus"] == TERM
            graph.insert(["hal"], ["ian"])
            assert set(live.names().to_series()) >= names


@pytest.mark.slow
def test_a_lost_worker(tmp_path):
    """The result goes on, with the names of the last snapshot; what it told since is marked."""
    with (
        processes(2) as client,
        DynamicGraph(client, 8, directed=False, store=tmp_path / "store", recover="auto") as graph,
    ):
        graph.insert([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3])
        live = graph.maintain("leiden")
        graph.snapshot()
        graph.insert([6], [7])
        assert live.names().to_numpy().tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
        os.kill(client.run(os.getpid, workers=[graph.workers[0]])[graph.workers[0]], signal.SIGKILL)
        graph.delete([0, 0], [1, 2])
        names = live.names().to_numpy()
        assert names[1:].tolist() == [0, 0, 1, 1, 1, 2, 2] and names[0] >= TERM
        for since in (1, 2):
            events = events_since(live, since)
            assert events[0] == LOST and ("shrunk", 0, None, 3, 2) in events
        assert live.changes(3).communities.num_rows == 0
