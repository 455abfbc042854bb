"""Regions of memory that ranks map."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mgraph.errors import DeviceError
from mgraph.exchange import regions
from mgraph.exchange.regions import ALREADY_MAPPED, DeviceRegion

OTHER = b'{"pid": -1, "handle": "00", "address": 0}'


class Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def region(statuses: list[int]) -> DeviceRegion:
    """A region of rank 0 whose driver refuses to map another one with each of these statuses, and then maps it."""

    def open_handle(handle: bytes) -> int:
        if statuses:
            raise Refused(statuses.pop(0))
        return 4096

    made = DeviceRegion.__new__(DeviceRegion)
    made.addresses, made._mapped = [0, 0], []
    made._runtime = SimpleNamespace(
        CUDARuntimeError=Refused, deviceSynchronize=lambda: None, ipcOpenMemHandle=open_handle
    )
    return made


def test_a_region_is_mapped_once_another_graph_has_unmapped_what_lay_there():
    made = region([ALREADY_MAPPED] * 3)
    made.open({1: OTHER})
    assert (made.addresses, made._mapped) == ([0, 4096], [4096])


def test_a_region_that_stays_mapped_and_other_errors_are_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regions, "CLOSING", 0.05)
    for statuses in ([ALREADY_MAPPED] * 1000, [1]):
        with pytest.raises(DeviceError, match=f"rank 1's GPU cannot be mapped: status {statuses[0]}"):
            region(statuses).open({1: OTHER})
