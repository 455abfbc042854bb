"""Names of communities against the slow model, over random communities that merge, split, move and lose vertices."""

from __future__ import annotations

import numpy as np
import pytest
from community_names import Event, NamesModel, parts
from plain_graph import fresh_rng

from mgraph.algorithms.communities.dynamic.names import EVENTS, Names
from mgraph.device import Device


def labelled(groups: np.ndarray) -> np.ndarray:
    """Each vertex's group by its least vertex."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse].astype(np.uint32)


def changed(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some vertices move; sometimes groups merge or split, and vertices come."""
    groups = groups.copy()
    k = groups.max() + 1
    some = rng.integers(0, len(groups), rng.integers(0, 6))
    groups[some] = rng.integers(0, k + 2, len(some))
    if rng.random() < 0.3:
        groups[groups == rng.integers(0, k)] = rng.integers(0, k)
    if rng.random() < 0.3:
        groups[(groups == rng.integers(0, k)) & (rng.random(len(groups)) < 0.5)] = k + 5
    if rng.random() < 0.3:
        groups = np.append(groups, rng.integers(0, k + 8, rng.integers(1, 4)))
    return groups


def events_of(names: Names) -> list[Event]:
    """The events at the last read."""
    columns = [names.passed[name].tolist() for name in ("event", "name", "other", "before", "after")]
    return [(EVENTS[e], name, None if o < 0 else o, b, a) for e, name, o, b, a in zip(*columns, strict=True)]


def test_random_communities(device: str) -> None:
    rng, place, kinds = fresh_rng(), Device(device, 0), set()
    for _ in range(30):
        groups = rng.integers(0, rng.integers(1, 9), rng.integers(1, 40))
        names, model = Names(), NamesModel()
        for number in range(12):
            before = dict(model.names)
            if number and rng.random() < 0.3 and len(groups) > 4:
                gone = np.sort(rng.choice(len(groups), rng.integers(1, 4), replace=False))
                if rng.random() < 0.5:
                    gone = np.flatnonzero(groups == groups[0])[: len(groups) - 1]
                kept = np.delete(np.arange(len(groups)), gone)
                new = dict(zip(kept.tolist(), range(len(kept)), strict=True))
                model.remove(gone.tolist(), new)
                before = {new[v]: name for v, name in before.items() if v in new}
                names.remove(place, gone)
                groups = groups[kept]
            groups = changed(groups, rng)
            labels = labelled(groups)
            want = model.read(parts(labels))
            listed = number > 0 and len(labels) == len(names.labels) and rng.random() < 0.5
            if listed:  # the vertices with another label, and some others
                differ = (labels != Device.to_host(names.labels)) | (rng.random(len(labels)) < 0.2)
                vertices = rng.permutation(np.flatnonzero(differ))
                names.pass_on(place, labels[vertices], vertices)
                np.testing.assert_array_equal(Device.to_host(names.labels), labels)
            else:
                names.pass_on(place, place.asarray(labels))
            got = events_of(names)
            assert got == want
            kinds |= {event[0] for event in got}
            got_names = Device.to_host(names.names)[labels].tolist()
            assert got_names == [model.names[v] for v in range(len(groups))]
            if number == 0:  # no vertex had a name
                continue
            moves = [names.passed[name].tolist() for name in ("vertex", "origin", "target")]
            assert list(zip(*moves, strict=True)) == [
                (v, before.get(v, -1), name) for v, name in sorted(model.names.items()) if before.get(v, -1) != name
            ]
            assert names.next == model.next
    assert kinds == {*EVENTS} - {"lost"}  # which only stores know


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [("grown", 0, None, 3, 6), ("merged into", 1, 0, 3, 0)]),
        ([0, 0, 0, 0], [0, 0, 2, 2], [("shrunk", 0, None, 4, 2), ("split from", 1, 0, 0, 2)]),
        ([0, 0, 2, 2], [0, 0, 2, 2], []),
        ([0, 1, 1, 1], [0, 0, 0, 0], [("merged into", 0, 1, 1, 0), ("grown", 1, None, 3, 4)]),
        (
            [0, 0, 2, 2],
            [0, 1, 0, 1],
            [("changed", 0, None, 2, 2), ("merged into", 1, 0, 2, 0), ("born", 2, None, 0, 2)],
        ),
    ],
    ids=["merge", "split", "same", "the larger keeps its name", "halves that meet"],
)
def test_single_steps(before: list[int], after: list[int], events: list[Event]) -> None:
    names, place = Names(), Device("cpu", 0)
    for groups in (before, after):
        names.pass_on(place, labelled(np.array(groups)))
    assert events_of(names) == events


def test_names_begin_at_a_given_number() -> None:
    names = Names(7)
    names.pass_on(Device("cpu", 0), np.array([0, 0, 2], np.uint32))
    assert names.names[[0, 0, 2]].tolist() == [7, 7, 8] and names.next == 9
