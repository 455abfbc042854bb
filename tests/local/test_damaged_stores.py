"""Stores that lack a file, or that earlier versions wrote: what is raised, what a repair gives up, and what opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mgraph import DynamicGraph, StoreError
from mgraph.log import head
from mgraph.log.store import Store


def written(path: Path, terms: list[int], **options: Any) -> None:
    """A store of some terms, with so many epochs each: epoch e has the edge e -> e + 1."""
    epoch = 0
    for number, epochs in enumerate(terms):
        with DynamicGraph.open(path) if number else DynamicGraph(n_vertices=50, store=path, **options) as graph:
            for _ in range(epochs):
                epoch += 1
                graph.insert([epoch], [epoch + 1])
            assert graph.epoch == epoch


def opened(path: Path, **how: Any) -> int:
    with DynamicGraph.open(path, **how) as graph:
        assert graph.num_edges == graph.epoch
        return graph.epoch


def names(path: Path) -> dict[str, bytes]:
    """The content of each file but the locks."""
    files = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".lock" and file.name != "lock"]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def without_heads(path: Path) -> None:
    """As an earlier version left the store."""
    for file in path.glob("head-*.json"):
        file.unlink()


@pytest.mark.parametrize("heads", [True, False])
def test_a_missing_description_of_a_term_is_named_and_nothing_is_deleted(tmp_path, heads):
    store = tmp_path / "store"
    written(store, [1, 5])
    if not heads:
        without_heads(store)
    (store / "term-000002.json").unlink()
    before = names(store)
    for _ in range(2):
        with pytest.raises(
            StoreError, match=rf"{store}/term-000002\.json is missing, and {store}/term-000002 holds rec"
        ):
            opened(store)
    assert names(store) == before
    with pytest.warns(UserWarning, match=r"term-000002\.json is missing.*: what that term logged is given up"):
        assert opened(store, repair=True) == 1
    kept = {name.replace("term-000002.damaged", "term-000002"): data for name, data in names(store).items()}
    logs = {name for name in before if name.endswith(".log")}
    assert {name: kept[name] for name in logs} == {name: before[name] for name in logs}
    assert opened(store) == 1


def test_a_term_without_a_trace_but_its_head_is_named(tmp_path):
    store = tmp_path / "store"
    written(store, [1, 5])
    (store / "term-000002.json").unlink()
    shutil.rmtree(store / "term-000002")
    with pytest.raises(StoreError, match=r"term-000002\.json is missing: the head of rank 0 names it"):
        opened(store)
    with pytest.warns(UserWarning, match="what that term logged is given up"):
        assert opened(store, repair=True) == 1
    assert opened(store) == 1


def test_a_missing_folder_of_the_only_log_is_named(tmp_path):
    store = tmp_path / "store"
    written(store, [2, 3])
    shutil.rmtree(store / "term-000002")
    with pytest.raises(
        StoreError, match=rf"{store}/term-000002/rank-0000 is missing; the store is whole up to epoch 2"
    ):
        opened(store)
    with pytest.warns(UserWarning, match="epochs after 2 are given up"):
        assert opened(store, repair=True) == 2


def test_descriptions_that_were_swapped_are_named(tmp_path):
    store = tmp_path / "store"
    written(store, [3, 4, 3])
    second, third = store / "term-000002.json", store / "term-000003.json"
    texts = second.read_text(), third.read_text()
    second.write_text(texts[1])
    third.write_text(texts[0])
    with pytest.raises(StoreError, match=r"term-000002\.json is misnamed: it describes term 3"):
        opened(store)


@pytest.mark.parametrize("name", ["term-000001.json", "head-0000.json", "store.json"])
def test_a_description_under_the_name_of_another_is_named(tmp_path, name):
    store = tmp_path / "store"
    written(store, [2])
    other = "store.json" if name != "store.json" else "head-0000.json"
    shutil.copy(store / other, store / name)
    with pytest.raises(StoreError, match=rf"{store}/{name} is misnamed: it does not describe a"):
        opened(store)


def test_a_saved_graph_without_its_description_is_named(tmp_path):
    with DynamicGraph(n_vertices=9) as graph:
        graph.insert([1], [2])
        graph.save(tmp_path / "saved")
    (description,) = (tmp_path / "saved").glob("snapshot-*.json")
    description.unlink()
    with pytest.raises(StoreError, match=rf"{description} is missing, and its files are there"):
        DynamicGraph.load(tmp_path / "saved")


def test_the_parts_of_a_copy_that_was_not_completed_are_not_taken_for_those_of_another(tmp_path):
    with DynamicGraph(n_vertices=9) as graph:
        graph.insert([1, 2], [2, 3])
        graph.save(tmp_path / "saved")
    for description in (tmp_path / "saved").glob("*.json"):
        description.unlink()
    with DynamicGraph(n_vertices=9) as graph:
        graph.insert([5], [6])
        graph.save(tmp_path / "saved")
    with DynamicGraph.load(tmp_path / "saved") as graph:
        assert graph.has_edges([1, 5], [2, 6]).tolist() == [False, True]


def test_the_head_is_written_while_a_graph_goes_on(tmp_path, monkeypatch):
    """So that a log that is cut is found also where the graph was not closed."""
    monkeypatch.setattr(head, "SECONDS", 0.01)
    store = tmp_path / "store"
    with DynamicGraph(n_vertices=50, store=store) as graph:
        graph.insert([1], [2])
        graph.insert([2], [3])
        graph.insert([3], [4])
        while Store(str(store)).heads()[0].epoch < 2:  # of the last one, others might not know
            pass
        for copy in ("killed", "cut"):
            shutil.copytree(store, tmp_path / copy)
    assert opened(tmp_path / "killed") == 3
    log = tmp_path / "cut" / "term-000001" / "rank-0000" / "0000000000000000.log"
    log.write_bytes(log.read_bytes()[:200])
    with pytest.raises(StoreError, match=rf"{log}, offset \d+: a record that was synced is"):
        opened(tmp_path / "cut")


@pytest.mark.parametrize("format", [1, 2, 3])
def test_stores_of_earlier_formats_open_and_go_on(tmp_path, format):
    """Without heads; in format 1 snapshots have one checksum per file, and no name of their folder."""
    store, drops = tmp_path / "store", format == 3
    options: dict[str, Any] = {"keys": "int64", "drop_isolated": True} if drops else {"n_vertices": 50}
    with DynamicGraph(store=store, **options) as graph:
        graph.insert([1], [2])
        graph.insert([2], [3])
        graph.snapshot()
        graph.insert([3], [4])
    files = Store(str(store))
    without_heads(store)
    (store / "communities.bin").unlink()
    files.describe("store.json", {**files.about(), "format": format})
    if format == 1:
        (path,) = store.glob("snapshot-*.json")
        content = json.loads(path.read_text())["content"]
        for about in content["files"]:
            del about["pieces"]
        for name in ("folder", "keys", "offsets", "last"):
            content.pop(name, None)
        files.describe(path.name, content)
    assert files.about()["format"] == format
    for epoch in (3, 4):
        with DynamicGraph.open(store) as graph:
            assert (graph.epoch, graph.num_edges) == (epoch, epoch)
            graph.insert([epoch + 1], [epoch + 2])
    assert (store / "head-0000.json").exists()
    with DynamicGraph.open(store, retain=1) as graph:
        assert graph.snapshot() == 5
    with DynamicGraph.open(store) as graph:
        assert (graph.epoch, graph.num_edges) == (5, 5)
