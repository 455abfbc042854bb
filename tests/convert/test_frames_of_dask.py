"""Frames of Dask become graphs of its workers, and results become frames that stay there."""

from __future__ import annotations

from unittest.mock import patch

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgraph import DynamicGraph, GraphClosed, InvalidBatch, InvalidOption, UnknownVertex

some = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

IDS, WEIGHTS = st.integers(0, 12), st.floats(width=32, allow_nan=False)


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
    ):
        yield client


@some
@given(
    st.lists(st.tuples(IDS, IDS, WEIGHTS), min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([None, "int64", "string", "auto"]),
    st.integers(1, 5),
)
def test_frames(client, rows, weighted, keys, npartitions):
    frame = pd.DataFrame(rows, columns=["from", "to", "km"]).assign(note="x")
    if keys == "string":
        frame = frame.assign(**{end: frame[end].map("v{}".format) for end in ("from", "to")})
    there = dd.from_pandas(frame, npartitions=npartitions, sort=False)
    want = frame.drop_duplicates(["from", "to"], keep="last") if npartitions == 1 else frame
    with DynamicGraph.from_dask(there, "from", "to", "km" if weighted else None, client=client, keys=keys) as graph:
        assert graph.keys == (None if keys == "auto" else keys)
        found = graph.to_pandas()
        assert {*zip(found["source"], found["target"], strict=True)} == {*zip(want["from"], want["to"], strict=True)}
        if weighted and npartitions == 1:
            edges = dict(zip(zip(want["from"], want["to"], strict=True), want["km"], strict=True))
            assert dict(zip(zip(found["source"], found["target"], strict=True), found["weight"], strict=True)) == edges
        if keys is None:
            assert graph.insert([40], [0]).inserted == 1  # it grows
        elif keys != "auto":
            check_numbered(graph, there)


def check_numbered(graph, there):
    """Keys are in the order of partitions, sources before targets; each partition that brings some has an epoch."""
    seen, epochs, parts = {}, 0, [there.partitions[i].compute() for i in range(there.npartitions)]
    for part in parts:
        before = len(seen)
        seen = seen | dict.fromkeys([*part["from"], *part["to"]])
        epochs += len(seen) > before
    assert graph.vertices().tolist() == list(seen)
    assert graph.epoch == epochs + -(-sum(map(bool, map(len, parts))) // len(graph.workers))


def test_what_the_ends_choose(client):
    for source, kind in (
        ([0, 1, 2, 3], None),
        ([0, 1, 2, 10**6], "int64"),
        ([0, -1, 2, 3], "int64"),
        (list("abcd"), "string"),
    ):
        frame = dd.from_pandas(pd.DataFrame({"source": source, "target": source}), npartitions=2)
        with DynamicGraph.from_dask(frame, client=client) as graph, DynamicGraph.from_dask(frame) as here:
            assert (graph.keys, here.keys, here.workers) == (kind, kind, ("this process",))
            assert graph.num_edges == here.num_edges == 4


@pytest.mark.parametrize("keys", [None, "string"])
def test_times(client, keys):
    days = np.array(["2024-01-05", "2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[us]")
    ends = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 0], "day": days}
    given = pd.DataFrame(ends if keys is None else ends | {"source": list("abcd"), "target": list("bcda")})
    there = dd.from_pandas(given, npartitions=2, sort=False)
    for place in (client, None):
        with DynamicGraph.from_dask(there, time="day", client=place, keys=keys) as graph:
            assert sorted(graph.to_pandas()["time"]) == sorted(days)
        with DynamicGraph.from_dask(there, time="day", client=place, keys=keys, window=np.timedelta64(3, "D")) as graph:
            assert sorted(graph.to_pandas()["time"]) == sorted(days[[0, 3]])
    with pytest.raises(InvalidOption, match="times is False"):
        DynamicGraph.from_dask(there, time="day", client=client, keys=keys, times=False)
    with pytest.raises(InvalidBatch, match="partition 1: column 'day'"):
        late = dd.from_pandas(given.assign(day=[*days[:3], pd.NaT]), npartitions=2, sort=False)
        DynamicGraph.from_dask(late, time="day", client=client, keys=keys)
    if keys is None:
        with pytest.raises(UnknownVertex, match="row 1 is 3; the graph has 3 vertices"):
            DynamicGraph.from_dask(there, time="day", client=client, n_vertices=3)


@pytest.mark.parametrize("keys", [None, "int64"])
def test_times_of_partitions_in_several_units(client, keys):
    """A partition without rows has no kind of times, and dates are kept in the finest unit of all partitions."""
    dates = np.array(["2024-01-05", "2024-01-01T00:00:00.000000001"], "datetime64[ns]")
    edges = [pd.DataFrame({"source": [i], "target": [i + 1]}) for i in range(3)]
    none = edges[2].assign(time=0)[:0]
    parts = [none, edges[0].assign(time=dates[:1].astype("datetime64[s]")), edges[1].assign(time=dates[1:])]

    def made(*parts):
        there = dd.from_delayed([delayed(part) for part in parts], meta=none, verify_meta=False)
        return DynamicGraph.from_dask(there, time="time", client=client, keys=keys)

    with made(*parts) as graph:
        assert graph.times == "datetime64[ns]"
        assert graph.to_pandas()["time"].tolist() == [*map(pd.Timestamp, dates)]
    with pytest.raises(InvalidBatch, match=r"the partitions have times of datetime64\[s\] and int64; all are of one"):
        made(parts[1], edges[2].assign(time=7))


def frame(**columns) -> dd.DataFrame:
    good = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 0], "w": [0.5, 1.0, 1.5, 2.0]}
    return dd.from_pandas(pd.DataFrame(good | columns), npartitions=2, sort=False)


BAD = [
    (frame(target=[0, 1, 2.5, 3]), {"keys": None}, "partition 1: column 'target', row 0 is 2.5; vertex ids"),
    (frame(source=[0, -1, 2, 3]), {"keys": None}, "partition 0: column 'source', row 1 is -1"),
    (frame(source=pd.array([0, 1, None, 3], "Int64")), {}, "partition 1: column 'source', row 0 is missing"),
    (
        frame(source=["a", "b", None, "d"], target=list("abcd")),
        {"keys": "string"},
        "partition 1: column 'source', row 0 is missing",
    ),
    (frame(w=[1.0, 2.0, np.nan, 3.0]), {"weight": "w"}, "partition 1: column 'w', row 0 is missing"),
    (frame(), {"source": "from"}, "the frame has no column 'from'; its columns are 'source', 'target', 'w'"),
    (frame(), {"keys": "string"}, "partition 0: column 'source', row 0 is 0; the graph's keys are strings"),
    (
        frame(target=[0, 1, 4 * 10**9, 3]),
        {"keys": None},
        "partition 1, column 'target', row 0 is 4000000000, the graph",
    ),
    (frame().loc[10:], {}, "there are 0 edges"),
    (pd.DataFrame({"source": [0], "target": [1]}), {}, "takes a Dask DataFrame, got pandas.DataFrame"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("table", "options", "message"), BAD, ids=[message[:40] for *_, message in BAD])
def test_bad_frames(client, table, options, message):
    no_graph = patch("mgraph.client.creation.placement.OnCluster.begin", side_effect=AssertionError("a graph was made"))
    with no_graph, pytest.raises(InvalidBatch, match=message):
        DynamicGraph.from_dask(table, client=client, **options)


def test_calls_that_take_no_frames_of_dask():
    with pytest.raises(InvalidBatch, match="a DataFrame is Dask's; DynamicGraph.from_dask and ingest take it"):
        DynamicGraph.from_pandas(frame())
    with DynamicGraph(n_vertices=4) as graph, pytest.raises(InvalidBatch, match="is Dask's"):
        graph.insert(frame())


def test_ingest_takes_the_names_of_columns(client):
    with DynamicGraph(client, 4, weighted=True) as graph:
        graph.ingest(frame().rename(columns={"source": "from"}), source="from", weight="w")
        assert graph.weights([0, 3], [1, 0]).tolist() == [0.5, 2.0]


def test_options_that_do_not_fit(client):
    with pytest.raises(UnknownVertex, match="partition 1, column 'source', row 1 is 3; the graph has 3 vertices"):
        DynamicGraph.from_dask(frame(), client=client, n_vertices=3)
    with pytest.raises(InvalidOption, match="weighted is False"):
        DynamicGraph.from_dask(frame(), weight="w", client=client, weighted=False)
    with DynamicGraph.from_dask(frame().loc[10:], client=client, n_vertices=3) as graph:
        assert (graph.num_vertices, graph.num_edges) == (3, 0)


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ids", "order", "int64", "string", "rows", "here"])
def test_results_stay_on_their_workers(client, kind):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    n = 20
    src, dst = rng.integers(0, n, (2, 40))
    options = {"keys": kind} if kind in ("int64", "string") else {"n_vertices": n}
    if kind == "order":
        options["order"] = rng.permutation(n)
    with DynamicGraph(None if kind == "here" else client, **options) as graph:
        if kind == "string":
            src, dst = (np.array([f"v{i}" for i in end], object) for end in (src, dst))
        graph.insert(src, dst)
        start = src[0] if kind == "string" else int(src[0])
        if kind == "rows":
            result = graph.distances([start, int(dst[0])])
        else:
            result = graph.bfs(start, predecessors=True)
        made, want = result.to_dask(), result.to_pandas()
        there = [k for k in client.who_has() if isinstance(k, str) and k.startswith("mgraph-result-")]
        assert made.npartitions == (1 if kind == "here" else 2)
        if kind != "here":
            holders = {key: client.who_has()[key] for key in there}
            assert sorted(map(list, holders.values())) == sorted([address] for address in graph.workers)
        assert made.divisions == ((0, n // 2, n - 1) if kind in ("ids", "rows") else made.divisions)
        result.close()
    found = made.compute()  # after the graph was closed
    pd.testing.assert_frame_equal(found.sort_index(), want.sort_index(), check_index_type=False)
    assert found.dtypes.tolist() == made.dtypes.tolist() == want.dtypes.tolist()
    with pytest.raises(GraphClosed):
        result.to_dask()
