"""The modes of the files that mgraph makes, as SECURITY.md has them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mgraph import DynamicGraph
from mgraph.exchange.segment import Segment
from mgraph.kernels.libraries import folder
from mgraph.log.shared_memory_tail import SharedMemoryTail


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def umask():
    """A umask that takes nothing away, for files that are private by themselves."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_memory_that_processes_share_is_private(umask, tmp_path):
    _, place = Segment.create(8192, {})
    tail = SharedMemoryTail(8192, 0x7E5700000000A0DE, str(tmp_path / "store" / "term-000001" / "rank-0000"))
    try:
        assert mode(place.path) == mode(tail.path) == 0o600
    finally:
        Segment.unlink(place)
        tail.close()


def test_compiled_kernels_are_private(umask, tmp_path, monkeypatch):
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    assert mode(folder()) == 0o700


@pytest.mark.parametrize(("umask", "files", "folders"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_a_store_follows_the_umask(tmp_path, umask, files, folders):
    before = os.umask(umask)
    try:
        with DynamicGraph(n_vertices=5, store=tmp_path / "store") as graph:
            graph.insert([0], [1])
    finally:
        os.umask(before)
    paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    kinds = {(path.is_dir(), mode(path)) for path in paths}
    assert kinds == {(True, folders), (False, files)}
