"""Rank 0's list of keys: clients that know those of any earlier time get the difference."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.keys import KeyArray, KeyTable
from mgraph.tables.ids import as_keys
from mgraph.worker.shard.keys import KeyLog


def packed(keys: list) -> np.ndarray:
    kind = "string" if isinstance(keys[0], str) else "int64"
    names = KeyArray(kind, Device("cpu"))
    names.append(as_keys(keys, kind, "keys"))
    return names.packed()


def listed(names: KeyArray | None) -> list:
    return [] if names is None else names.take(np.arange(names.n)).tolist()


@pytest.mark.parametrize("make", [int, str])
@pytest.mark.parametrize("least", [4, 1 << 10])  # how many removals are remembered at least
def test_whoever_knows_the_keys_of_an_earlier_time_gets_the_difference(make, least, monkeypatch):
    monkeypatch.setattr(KeyLog, "LEAST", least)
    rng, log, generation, fresh = fresh_rng(), KeyLog(), 0, 0
    model: list = []
    times = [(0, [])]
    for _ in range(40):
        if model and rng.random() < 0.4:
            gone = np.sort(rng.choice(len(model), rng.integers(1, len(model) + 1), replace=False)).astype(np.uint32)
            generation += 1
            log.note(None, gone, generation)
            model = np.delete(np.array(model, object), gone).tolist()
        elif rng.random() < 0.3:
            generation += 1  # a new order
        else:
            keys = [make(fresh + k) for k in range(rng.integers(1, 6))]
            fresh += len(keys)
            log.note(packed(keys), None, generation)
            model = model + keys
        assert log.n == len(model)
        assert listed(log.names) == model
        times.append((generation, model))
        for then, known in times:
            told = log.since(then, len(known))
            if told:
                left = np.delete(np.array(known, object), told["gone"]).tolist()
                assert left + listed(KeyArray.unpacked(told["keys"])) == model
            else:
                assert model == []


def test_without_memory_it_is_made_up_for_when_the_keys_are_read(monkeypatch):
    def extend(*_):
        raise CapacityError("no room")

    log = KeyLog()
    log.note(packed([1, 2]))
    with monkeypatch.context() as patch:
        patch.setattr(KeyArray, "extend", extend)
        log.note(packed([3]))
        with pytest.raises(CapacityError):
            log.since(0, 0)
    log.note(None, np.array([0], np.uint32), 1)
    assert log.n == 2
    assert listed(log.names) == [2, 3]


def test_a_client_without_keys_gets_all_and_one_of_the_last_time_gets_nothing():
    names = KeyTable("string", Device("cpu")).names
    names.append(as_keys(["a", "b"], "string", "keys"))
    log = KeyLog(names, 7)
    assert listed(KeyArray.unpacked(log.since(7, 0)["keys"])) == ["a", "b"]
    told = log.since(7, 2)
    assert (len(told["gone"]), KeyArray.count(told["keys"])) == (0, 0)
