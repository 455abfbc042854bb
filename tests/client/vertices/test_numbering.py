"""Users' ids and internal ids, and who owns which: pure arithmetic, against loops over the vertices."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import cuts, fresh_rng, numberings

from mgraph.batch import MAX_VERTICES
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import InvalidOption
from mgraph.partition import Partition

SIZES = (0, 1, 2, 50)


@pytest.mark.parametrize("n", SIZES)
def test_every_id_goes_to_its_owner_and_its_answer_to_its_place(n):
    rng = fresh_rng()
    for numbering in numberings(rng, n):
        starts = numbering.partition.starts
        drawn = rng.integers(0, n, 3 * n).astype(np.uint32) if n else []
        for asked in (np.arange(n, dtype=np.uint32), drawn, *([v] for v in range(n))):
            ids = np.asarray(asked, np.uint32)
            routed = numbering.route(ids)
            np.testing.assert_array_equal(routed.internal, numbering.inside(ids))
            parts = routed.deal(routed.internal)
            assert len(parts) == numbering.partition.size
            for rank, part in enumerate(parts):
                assert ((part >= starts[rank]) & (part < starts[rank + 1])).all()
            np.testing.assert_array_equal(routed.restore(parts), routed.internal)
            np.testing.assert_array_equal(routed.restore(routed.deal(ids)), ids)  # another column goes along


@pytest.mark.parametrize("n", SIZES)
def test_inside_and_outside_are_each_others_inverse(n):
    rng = fresh_rng()
    for numbering in numberings(rng, n):
        every = np.arange(n, dtype=np.uint32)
        np.testing.assert_array_equal(numbering.outside(numbering.inside(every)), every)
        np.testing.assert_array_equal(numbering.inside(numbering.outside(every)), every)
        values = rng.random(n)  # by internal id
        by_user = numbering.by_user(values)
        assert [by_user[user] for user in range(n)] == [values[numbering.inside(every)[user]] for user in range(n)]


def test_what_keeps_its_order_is_not_sorted():
    numbering = Numbering(Partition((0, 3, 3, 10)))
    assert numbering.route(np.array([0, 2, 1, 9, 3], np.uint32)).places is None
    assert numbering.route(np.array([3, 2], np.uint32)).places.tolist() == [1, 0]
    assert numbering.route(np.array([], np.uint32)).bounds == [0, 0, 0, 0]


def test_the_last_ids_that_there_are():
    numbering = Numbering(Partition((0, 1 << 31, MAX_VERTICES - 1, MAX_VERTICES)))
    ids = np.array([MAX_VERTICES - 1, 0, (1 << 31) - 1, 1 << 31, MAX_VERTICES - 2], np.uint32)
    routed = numbering.route(ids)
    assert [part.tolist() for part in routed.deal(ids)] == [
        [0, (1 << 31) - 1], [1 << 31, MAX_VERTICES - 2], [MAX_VERTICES - 1],
    ]  # fmt: skip
    np.testing.assert_array_equal(routed.restore(routed.deal(ids)), ids)


@pytest.mark.parametrize("n", SIZES)
def test_ranges_move_and_vertices_are_added_and_every_id_stays(n):
    rng = fresh_rng()
    for numbering in numberings(rng, n):
        size = numbering.partition.size
        moved = numbering.moved(cuts(rng, n, size))
        more = moved.moved(moved.partition.grown(4))
        every = np.arange(n, dtype=np.uint32)
        for other in (moved, more):
            np.testing.assert_array_equal(other.inside(every), numbering.inside(every))
            assert other.generation == numbering.generation
        added = np.arange(n, n + 4, dtype=np.uint32)
        np.testing.assert_array_equal(more.inside(added), added)
        np.testing.assert_array_equal(more.outside(added), added)
        assert (numbering.n_vertices, moved.n_vertices, more.n_vertices) == (n, n, n + 4)
        owned = [0] * (size - 1) + [4] if n else np.diff(Partition.equal(4, size).starts).tolist()
        assert [len(part) for part in more.route(added).deal(added)] == owned


# ---- from a user's options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("size", [1, 3])
def test_ranges_by_a_users_degrees_have_equal_work_by_internal_ids(n, size):
    rng = fresh_rng()
    degrees, order = rng.integers(0, 300, n), rng.permutation(n)
    for given in (None, order, order.tolist()):
        numbering = Numbering.make(n, size, given, degrees)
        inside = np.arange(n) if given is None else order
        by_internal = [degree for _, degree in sorted(zip(inside.tolist(), degrees.tolist(), strict=True))]
        assert numbering.partition == Partition.balanced(np.array(by_internal), size)
        np.testing.assert_array_equal(numbering.inside(np.arange(n)), inside)
        for same in (None, "vertices"):
            assert Numbering.make(n, size, given, same).partition == Partition.equal(n, size)


def test_whatever_is_an_array_is_an_order():
    pandas = pytest.importorskip("pandas")
    order = [2, 0, 1]
    for given in (order, np.array(order, np.int8), np.array(order, np.uint64), pandas.Series(order)):
        made = Numbering.make(3, 2, given, pandas.Series([1, 1, 1]))
        assert (made.order.dtype, made.order.tolist()) == (np.uint32, order)
    assert Numbering.make(0, 2, [], []).n_vertices == 0


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1], r"order has shape \(2,\) and dtype int64; it must be 4 integers, the internal id of each vertex"),
        ([[0, 1], [2, 3]], r"order has shape \(2, 2\)"),
        ([0.0, 1.0, 2.0, 3.0], "dtype float64"),
        ([True, False, True, False], "dtype bool"),
        ([0, 0, 1, 2], "no vertex has the internal id 3"),
        ([0, 1, 2, 4], r"order\[3\] is 4; internal ids run from 0 to 3"),
        ([0, -1, 2, 3], r"order\[1\] is -1"),
        ([2**40, 0, 1, 2], r"order\[0\] is 1099511627776"),
        ([[1], [2, 3]], "order: a list cannot be made an array"),
        (np.ma.array([0, 1, 2, 3], mask=[0, 1, 0, 0]), r"order\[1\] is masked"),
    ],
    ids=str,
)
def test_what_is_no_permutation(order, message):
    with pytest.raises(InvalidOption, match=message):
        Numbering.make(4, 2, order)


@pytest.mark.parametrize(
    ("balance", "message"),
    [
        ("edges", "balance 'edges' is neither None, \"vertices\" nor an array of degrees"),
        ([1.5] * 4, "dtype float64"),
        ([1, 2, 3], r"balance has shape \(3,\)"),
        ([1, 2, 3, -1], "4 integers of 0 or more, the degree of each vertex"),
        (np.ma.array([1, 2, 3, 4], mask=[1, 0, 0, 0]), r"balance\[0\] is masked"),
    ],
    ids=str,
)
def test_what_is_no_degree_for_each_vertex(balance, message):
    with pytest.raises(InvalidOption, match=message):
        Numbering.make(4, 2, None, balance)
