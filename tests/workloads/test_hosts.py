"""The model of several hosts: its bytes and meetings are those of programs, and the page shows what it prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from spmd import Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.device import Device
from mgraph.exchange import cargo
from mgraph.sources.rmat import Rmat
from workloads.__main__ import main
from workloads.hosts import BFS_MEETINGS, UPWARD, Hosts, bfs_bytes, bfs_seconds, pagerank_bytes, pagerank_seconds, rows

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "beyond-one-host.md"
SCALE = 12


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The bytes of shares and of everything in the cargo of each meeting, from the first of two hosts."""
    sizes, load = list[tuple[int, int]](), cargo.Cargo.load

    def noted(self: cargo.Cargo, words: cargo.Words, to: list[int], head: np.ndarray) -> np.ndarray:
        data = load(self, words, to, head)
        if 0 in words:
            sizes.append((self.nbytes(words, self._mates, []), len(data) - len(head)))
        return data

    monkeypatch.setattr(cargo.Cargo, "load", noted)
    return sizes


def two_hosts(name: str, *args: int, **options: object) -> dict:
    """Run an algorithm on two hosts of two ranks; return its info."""
    src, dst = Rmat(SCALE, batch=8 << SCALE, seed=1)(0, 1, 0, Device("cpu"))[:2]
    graph, partition = Graph(1 << SCALE, src, dst, directed=False), cut(1 << SCALE, 4)
    return run(shards(graph, partition, mapped="carried"), ALGORITHMS[name], *args, **options)[1]


def test_bytes_of_pagerank(loads: list[tuple[int, int]]) -> None:
    info = two_hosts("pagerank", tol=0.0, max_iter=12)
    whole = [share for share, _ in loads if share == pagerank_bytes(1 << SCALE, 2)]
    assert info["iterations"] == 12
    assert 11 <= len(whole) <= 13
    assert sum(total for _, total in loads) <= 14 * pagerank_bytes(1 << SCALE, 2)


def test_the_default_tolerance_halves_the_bytes_of_pagerank(loads: list[tuple[int, int]]) -> None:
    info = two_hosts("pagerank")
    assert {share for share, _ in loads} == {0, pagerank_bytes(1 << SCALE, 2) / 2}
    assert len(loads) >= info["iterations"]


def test_bytes_and_meetings_of_a_search(loads: list[tuple[int, int]]) -> None:
    info = two_hosts("bfs", 0)
    bitmaps = [share for share, _ in loads if share]
    assert set(bitmaps) == {bfs_bytes(1 << SCALE, 2)}
    assert info["bottom_up"] <= len(bitmaps) <= UPWARD
    assert len(bitmaps) < len(loads) <= BFS_MEETINGS


def test_hosts_meet_only_if_there_are_several() -> None:
    assert Hosts(1, 100).carry(1e9) == 0
    assert Hosts(2, 100).carry(0) == Hosts(2, 100).meeting
    assert bfs_seconds(27, Hosts(1, 100)) == pytest.approx(0.775e-3)
    assert bfs_seconds(26, Hosts(1, 100)) == pytest.approx((0.262 * 0.775) ** 0.5 * 1e-3)
    # A fast network divides the work by the hosts; on a slow one the shares of all vertices take as long on any number.
    free = {"gigabits": 1e9, "meeting": 0.0, "link": 1e18}
    assert pagerank_seconds(30, Hosts(4, **free)) == pytest.approx(pagerank_seconds(30, Hosts(1, 1)) / 4, rel=1e-3)
    assert pagerank_seconds(30, Hosts(16, 1)) > pagerank_seconds(30, Hosts(2, 1))


def test_the_page_has_the_table_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hosts"]) == 0
    table = capsys.readouterr().out
    assert table.splitlines() == rows([30, 31], [1, 2, 4, 8, 16], [100.0, 400.0])
    assert table in PAGE.read_text()
    assert all(text in "".join(rows([32, 33], [1, 2], [100.0])) for text in ("(memory)", "(ids)"))
