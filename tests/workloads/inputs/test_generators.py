"""Seeded, the same in chunks, and distributed as the parameters say."""

import numpy as np
import pytest

from mgraph.errors import InvalidOption
from workloads.inputs.generators import GRAPH500, MAX_SCALE, SHAPES, Generator, from_spec


@pytest.mark.parametrize("spec", ["rmat:10:7", "uniform:9:5", "road:9:4", "hub:10:3", "planted:10:5", "grid:9:1"])
@pytest.mark.parametrize("size", [1, 1000, 10**9])
def test_chunks_are_the_whole(spec, size):
    generator = from_spec(spec, seed=11)
    size = max(size, 1)
    src, dst = generator.edges()
    if size == 1:
        parts = [generator.edges(i, i + 1) for i in range(50)]
        src, dst = src[:50], dst[:50]
    else:
        parts = list(generator.chunks(size))
    np.testing.assert_array_equal(np.concatenate([s for s, _ in parts]), src)
    np.testing.assert_array_equal(np.concatenate([d for _, d in parts]), dst)


def test_stream_has_the_announced_size():
    stream = from_spec("rmat:10:7").stream(chunk=999)
    assert (len(stream), stream.n_vertices) == (7 * 1024, 1024)
    src, dst = from_spec("rmat:10:7").edges()
    np.testing.assert_array_equal(stream.src, src)
    np.testing.assert_array_equal(stream.dst, dst)
    assert stream.src.dtype == np.uint32
    assert max(stream.src.max(), stream.dst.max()) < 1024


def test_seeds_differ_and_repeat():
    one, again, other = (from_spec("rmat:12:4", seed=seed).edges() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one[0] != other[0]).mean() > 0.9


def test_pinned():
    """The published experiments' graphs never change silently."""
    src, dst = from_spec("rmat:18:16", seed=0).edges(0, 4)
    assert (src.tolist(), dst.tolist()) == PINNED


PINNED = ([236783, 24268, 190637, 190363], [231277, 7222, 53639, 126442])


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_quadrants_at_every_level(seed):
    scale, m = 18, 200_000
    src, dst = Generator(scale, 16, seed, shuffled=False).edges(0, m)
    for level in range(scale):
        quadrant = 2 * ((src >> level) & 1) + ((dst >> level) & 1)
        share = np.bincount(quadrant, minlength=4) / m
        np.testing.assert_allclose(share, GRAPH500, atol=0.005)  # five standard deviations are 0.0055 at most


def test_levels_are_independent():
    scale, m = 16, 200_000
    src, dst = Generator(scale, 16, 5, shuffled=False).edges(0, m)
    bits = np.array([(ids >> level) & 1 for ids in (src, dst) for level in range(scale)], float)
    correlation = np.corrcoef(bits)
    for level in range(scale):  # a pair of bits of one level is correlated by design
        correlation[level, scale + level] = correlation[scale + level, level] = 0
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 0.015


@pytest.mark.parametrize("scale", [1, 2, 3, 5, 8, 13, 16])
@pytest.mark.parametrize("seed", [0, 7])
def test_shuffle_is_a_permutation(scale, seed):
    ids = np.arange(1 << scale, dtype=np.uint32)
    shuffled = Generator(scale, 1, seed)._shuffle(ids)
    np.testing.assert_array_equal(np.sort(shuffled), ids)
    if scale >= 8:
        assert abs(np.corrcoef(ids, shuffled)[0, 1]) < 0.3


def test_degrees_are_skewed_for_rmat_alone():
    rmat, uniform = (np.bincount(from_spec(s).edges()[0], minlength=1 << 14) for s in ("rmat:14:16", "uniform:14:16"))
    assert rmat.max() > 50 * rmat.mean()
    assert uniform.max() < 3.5 * uniform.mean()


@pytest.mark.parametrize("scale", [8, 9])
def test_roads_go_to_one_of_four_sides(scale):
    src, dst = from_spec(f"road:{scale}:400").edges()
    width = 1 << (scale + 1) // 2
    (column, row), (to_column, to_row) = (np.divmod(ids.astype(int), width)[::-1] for ids in (src, dst))
    height = (1 << scale) // width
    sides = np.stack([(to_column - column) % width, (to_row - row) % height])
    found = set(zip(*sides.tolist(), strict=True))
    assert found == {(1, 0), (width - 1, 0), (0, 1), (0, height - 1)}
    assert len(np.unique(src.astype(np.uint64) << np.uint64(32) | dst)) == 4 << scale
    assert 2.4 < len(set(zip(*(a.tolist() for a in from_spec("road:12:4").edges()), strict=True))) / 4096 < 2.65


@pytest.mark.parametrize("scale", [1, 2, 7, 8])
def test_a_grid_has_each_pair_of_neighbours_once(scale):
    generator, width = from_spec(f"grid:{scale}:16"), 1 << (scale + 1) // 2
    ids = np.arange(1 << scale).reshape(-1, width)
    pairs = [*zip(ids[:, :-1].flat, ids[:, 1:].flat, strict=True), *zip(ids[:-1].flat, ids[1:].flat, strict=True)]
    src, dst = generator.edges()
    assert list(zip(src, dst, strict=True)) == pairs
    np.testing.assert_array_equal(generator.edges(generator.n_edges, 2 * generator.n_edges), (src, dst))


def test_half_of_the_edges_leave_the_hub():
    src, dst = from_spec("hub:12:16").edges()
    assert 0.48 < (src == 0).mean() < 0.52
    others = np.bincount(src[src > 0], minlength=4096)[1:]
    assert others.max() < 5 * others.mean()
    assert np.bincount(dst, minlength=4096).max() < 3.5 * 16


def test_planted_communities_have_seven_of_ten_edges():
    generator = from_spec("planted:14:16")
    bounds, back = generator._bounds.astype(int), np.empty(1 << 14, int)
    back[generator._shuffle(np.arange(1 << 14, dtype=np.uint32))] = np.arange(1 << 14)
    src, dst = (np.searchsorted(bounds, back[end], "right") for end in generator.edges())
    assert 0.69 < (src == dst).mean() < 0.72
    sizes = np.diff(bounds)
    assert sizes.max() <= 512 and np.median(sizes) < 80 < sizes.mean()


@pytest.mark.parametrize("shape", SHAPES)
def test_largest_scale_stays_in_range(shape):
    src, dst = from_spec(f"{shape}:{MAX_SCALE}:1").edges(0, 1000)
    assert max(int(src.max()), int(dst.max())) < 2**31


@pytest.mark.parametrize(
    "spec", ["rmat", "rmat:10", "rmat:0:4", "rmat:32:4", "rmat:10:0", "rmat:-1:4", "torus:3:3", ""]
)
def test_bad_specs(spec):
    with pytest.raises(InvalidOption):
        from_spec(spec)


def test_bad_quadrants_and_chunks():
    with pytest.raises(InvalidOption, match="quadrants"):
        Generator(4, 4, quadrants=(0.5, 0.5, 0.5, -0.5))
    with pytest.raises(InvalidOption, match="chunk size is 0"):
        next(Generator(4, 4).chunks(0))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_on_a_gpu(shape):
    import cupy

    generator = from_spec(f"{shape}:20:4", seed=3)
    for ours, theirs in zip(generator.edges(5, 100_005), generator.edges(5, 100_005, xp=cupy), strict=True):
        np.testing.assert_array_equal(ours, theirs.get())
