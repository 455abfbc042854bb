"""Graphs for cuGraph and PyTorch Geometric: classes stand in for theirs, and for PyG itself where it is missing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD

from mgraph import DynamicGraph, InvalidBatch, InvalidOption


@pytest.fixture
def torch(monkeypatch):
    """PyTorch, whose tensors are NumPy's arrays, and its `Data`, which keeps what it is given."""
    made, geometric = ModuleType("torch"), ModuleType("torch_geometric.data")
    made.from_dlpack, geometric.Data = np.from_dlpack, SimpleNamespace
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setitem(sys.modules, "torch_geometric", ModuleType("torch_geometric"))
    monkeypatch.setitem(sys.modules, "torch_geometric.data", geometric)


def arcs(data) -> list:
    assert (data.edge_index.dtype, data.edge_index.flags.c_contiguous) == (np.int64, True)
    weight = getattr(data, "edge_weight", np.ones(data.edge_index.shape[1]))
    return sorted(zip(*data.edge_index.tolist(), weight.tolist(), strict=True))


@pytest.mark.parametrize("structure", ["gpma+", "slabgraph", "csr"])
def test_pyg(torch, structure):
    with DynamicGraph(n_vertices=5, structure=structure, weighted=True, device="cpu") as graph:
        graph.insert([3, 0, 3, 2], [1, 3, 0, 2], [0.5, 1.5, 2.5, 3.5])
        data = graph.to_pyg()
        assert (data.num_nodes, data.edge_weight.dtype) == (5, np.float32)
        assert arcs(data) == [(0, 3, 1.5), (2, 2, 3.5), (3, 0, 2.5), (3, 1, 0.5)]
        with DynamicGraph.from_dlpack(*data.edge_index, data.edge_weight, n_vertices=5) as again:
            assert again.fingerprint() == graph.fingerprint()
    with DynamicGraph(n_vertices=4, directed=False, order=[2, 0, 3, 1], structure=structure, device="cpu") as graph:
        graph.insert([0, 1], [1, 1])
        data = graph.to_pyg()
        assert not hasattr(data, "edge_weight")
        assert arcs(data) == [(0, 1, 1), (1, 0, 1), (1, 1, 1)]


def test_pyg_of_a_cluster_and_of_keys(torch):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
        DynamicGraph(client, 4, device="cpu") as graph,
    ):
        graph.insert([0, 3], [3, 1])
        assert arcs(graph.to_pyg()) == [(0, 3, 1), (3, 1, 1)]
    with DynamicGraph(device="cpu") as graph:
        graph.insert(["b", "a"], ["a", "c"])
        places = {name: i for i, name in enumerate(graph.vertices())}
        assert arcs(graph.to_pyg()) == sorted([(places["b"], places["a"], 1), (places["a"], places["c"], 1)])


def test_cugraph(monkeypatch):
    """The arrays that cuGraph would get are those of the device, which is here the CPU."""
    graphs = []

    class Graph:
        def __init__(self, directed: bool) -> None:
            self.directed = directed
            graphs.append(self)

        def from_cudf_adjlist(self, offset_col, index_col, value_col=None, renumber=True, store_transposed=False):
            self.given = offset_col, index_col, value_col, renumber

    cudf, cugraph = ModuleType("cudf"), ModuleType("cugraph")
    cudf.Series, cugraph.Graph = lambda array: array, Graph
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setitem(sys.modules, "cugraph", cugraph)
    with DynamicGraph(n_vertices=4, weighted=True, device="cpu") as graph:
        graph.insert([0, 2], [2, 3], [0.5, 1.5])
        with pytest.raises(InvalidOption, match="to_cugraph takes a graph in this process, on a GPU"):
            graph.to_cugraph()
        monkeypatch.setattr(DynamicGraph, "device", property(lambda self: "cuda"))
        made = graph.to_cugraph()
        offsets, index, values, renumber = made.given
        assert (made, made.directed, renumber) == (graphs[0], True, False)
        assert (offsets.dtype, index.dtype, values.dtype) == (np.int32, np.int32, np.float32)
        assert (offsets.tolist(), index.tolist(), values.tolist()) == ([0, 1, 1, 2, 2], [2, 3], [0.5, 1.5])
    with DynamicGraph(n_vertices=2, order=[1, 0]) as graph, pytest.raises(InvalidOption, match="without an order"):
        graph.to_cugraph()


def test_cudf():
    """A frame with cuDF's few methods that the converter calls; its arrays are NumPy's."""

    class Series:
        def __init__(self, values) -> None:
            self.array = values if isinstance(values, np.ndarray) else np.array(values)
            self.dtype = self.array.dtype

        def isna(self):
            return np.array([value is None or value != value for value in self.array])

        @property
        def values(self):
            return self.array

        def to_arrow(self):
            import pyarrow as pa

            return pa.chunked_array([pa.array(self.array.tolist(), from_pandas=True)])

    class DataFrame(dict):
        columns = property(lambda self: list(self))

    Series.__module__ = DataFrame.__module__ = "cudf.core"
    frame = DataFrame(a=Series([0, 5]), b=Series([5, 2]), w=Series([0.5, 1.5]), s=Series(["x", "y"]))
    with DynamicGraph.from_cudf(frame, "a", "b", "w") as graph:
        assert graph.to_pandas().to_numpy().tolist() == [[0, 5, 0.5], [5, 2, 1.5]]
        assert graph.insert(DataFrame(source=Series([2]), target=Series([0]))).inserted == 1
    with DynamicGraph.from_cudf(DataFrame(source=frame["s"], target=frame["s"])) as graph:
        assert graph.vertices().tolist() == ["x", "y"]
    for column, message in (
        (Series([0.0, np.nan]), "column 'b', row 1 is missing"),
        (Series([0, -2]), "column 'b', row 1 is -2"),
        (Series([0.5, 2]), "column 'b', row 0 is 0.5"),
    ):
        with pytest.raises(InvalidBatch, match=message):
            DynamicGraph.from_cudf(DataFrame(frame, b=column), "a", "b", keys=None)
    with pytest.raises(InvalidBatch, match="no column 'source'; its columns are 'a', 'b', 'w', 's'"):
        DynamicGraph.from_cudf(frame)
    with pytest.raises(InvalidBatch, match="takes a cudf DataFrame, got dict"):
        DynamicGraph.from_cudf({"source": [0]})


def test_pyg_itself():
    torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
    rng = np.random.default_rng(5)
    with DynamicGraph(n_vertices=60, weighted=True, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 300)), rng.random(300))
        data = graph.to_pyg()
        assert data.validate()
        assert (data.num_nodes, data.is_sorted(), data.is_coalesced()) == (60, True, True)
        assert geometric.nn.GCNConv(3, 2)(torch.ones(60, 3), data.edge_index, data.edge_weight).shape == (60, 2)
        with DynamicGraph.from_dlpack(*data.edge_index, data.edge_weight, n_vertices=60) as again:
            assert again.fingerprint() == graph.fingerprint()
        before = graph.to_pandas()
        data.edge_index[:], data.edge_weight[:] = 0, 0  # the tensors are the user's own
        assert graph.to_pandas().equals(before)
        for bad in (torch.tensor([1.0], requires_grad=True), torch.ones(1, dtype=torch.bfloat16)):
            with pytest.raises(InvalidBatch, match="a Tensor cannot be made an array"):
                graph.insert([0], [1], bad)
        assert graph.to_pandas().equals(before)


@pytest.mark.parametrize("fanouts", [[-1, -1], [3, 2], [2, 0, 2]])
def test_samples_are_what_loaders_of_pyg_take(fanouts):
    torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput

    rng = np.random.default_rng(6)
    with DynamicGraph(n_vertices=60, reverse=True, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 300)))

        class Sampler(BaseSampler):
            def sample_from_edges(self, *args, **options):
                raise NotImplementedError

            def sample_from_nodes(self, index, **options):
                found = graph.sample_neighbors(index.node, fanouts)
                nodes, row, col = map(torch.from_numpy, (found.node, found.row, found.col))
                counts = found.num_sampled_nodes, found.num_sampled_edges
                return SamplerOutput(nodes, row, col, None, None, *counts, metadata=(index.input_id, index.time))

        data = graph.to_pyg()
        edges, degrees = set(zip(*data.edge_index.tolist(), strict=True)), torch.bincount(data.edge_index[1])
        for batch in NodeLoader(data, Sampler(), input_nodes=torch.arange(60), batch_size=7):
            assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
            sampled = batch.n_id[batch.edge_index]
            assert set(zip(*sampled.tolist(), strict=True)) <= edges
            x, ends = batch.n_id, batch.edge_index
            for hop in range(len(fanouts)):  # from the last hop to the first, as a model reads them
                counts = torch.bincount(ends[1], minlength=len(x))[: batch.batch_size]
                want = degrees[batch.input_id]
                assert torch.equal(counts, want if fanouts[0] < 0 else want.clamp(max=fanouts[0]))
                x, ends, _ = geometric.utils.trim_to_layer(hop, *counts_of(batch), x, ends)
                assert not ends.numel() or int(ends.max()) < len(x)


def counts_of(batch) -> tuple[list[int], list[int]]:
    return batch.num_sampled_nodes, batch.num_sampled_edges
