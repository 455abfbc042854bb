"""Ranges of vertices and the order by degree."""

import numpy as np
import pytest

from mgraph.errors import InvalidOption
from mgraph.partition import Partition, degree_order


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_equal_ranges_cover_all(n: int, size: int) -> None:
    partition = Partition.equal(n, size)
    lengths = np.diff(partition.starts)
    assert (partition.size, partition.n_vertices) == (size, n)
    assert lengths.max() - lengths.min() <= 1
    assert partition.owner(np.arange(n)).tolist() == np.repeat(np.arange(size), lengths).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_balanced_ranges_have_about_equal_work(size: int) -> None:
    for seed in range(5):
        print(f"seed {seed}")
        degrees = np.random.default_rng(seed).zipf(1.7, 1000).clip(max=300)
        partition = Partition.balanced(degrees, size)
        work = np.add.reduceat(degrees + 1, partition.starts[:-1])
        assert partition.n_vertices == 1000
        assert work.max() <= (degrees + 1).sum() / size + degrees.max() + 1


def test_balanced_ranges_of_equal_degrees_are_equal() -> None:
    assert Partition.balanced(np.ones(8, np.int64), 4).starts == (0, 2, 4, 6, 8)


def test_balanced_of_nothing() -> None:
    assert Partition.balanced(np.empty(0), 3).starts == (0, 0, 0, 0)


def test_vertices_added_join_the_last_range() -> None:
    assert Partition((0, 3, 5)).grown(4).starts == (0, 3, 9)


@pytest.mark.parametrize("starts", [(0,), (1, 2), (0, 3, 2)])
def test_bad_starts(starts: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOption, match="range starts"):
        Partition(starts)


@pytest.mark.parametrize("n", [0, 1, 5, 1000])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_degree_order_is_a_permutation_with_hubs_first_in_each_range(n: int, size: int) -> None:
    degrees = np.random.default_rng(n + size).zipf(1.5, n).clip(max=1000)
    order = degree_order(degrees, size)
    assert sorted(order.tolist()) == list(range(n))
    by_id = np.empty(n, np.int64)
    by_id[order] = degrees
    starts = Partition.equal(n, size).starts
    sums = []
    for r in range(size):
        mine = by_id[starts[r] : starts[r + 1]]
        assert (np.diff(mine) <= 0).all()
        sums.append(int(mine.sum()))
    assert max(sums) - min(sums) <= max(degrees, default=0)


def test_degree_order_keeps_neighbours_of_a_grid_in_a_range() -> None:
    side, size = 20, 4
    v = np.arange(side * side)
    right, down = v[v % side < side - 1], v[:-side]
    src, dst = np.concatenate([right, down]), np.concatenate([right + 1, down + side])
    order = degree_order(np.bincount(src, minlength=len(v)) + np.bincount(dst, minlength=len(v)), size)
    owners = Partition.equal(len(v), size).owner(order)
    # Three cuts between vertices of four edges, each through at most `side` + 1 edges, and the border's rows.
    assert (owners[src] != owners[dst]).sum() <= 3 * (side + 1) + 4 * side


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 3])
def test_degree_order_on_a_gpu_is_that_on_the_host(size: int) -> None:
    import cupy

    degrees = np.random.default_rng(size).integers(0, 50, 1000)  # many alike: ties keep their order
    found = degree_order(cupy.asarray(degrees), size)
    np.testing.assert_array_equal(found.get(), degree_order(degrees, size))


def test_the_first_vertices_of_all_are_dealt_evenly():
    assert Partition((0, 0, 0, 0)).grown(7) == Partition.equal(7, 3)
    assert Partition((0, 0, 0)).grown(0).starts == (0, 0, 0)
