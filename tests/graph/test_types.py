"""What type checkers and editors know of a graph and its results: mypy checks this file, too."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import pandas as pd

from mgraph import DynamicGraph, UpdateReport, VertexValues


def test_graphs_and_results_have_types(tmp_path: Path) -> None:
    with DynamicGraph(store=tmp_path / "store") as graph:
        assert_type(graph, DynamicGraph)
        assert_type(graph.insert(["ada"], ["grace"]), UpdateReport)
        assert type(assert_type(graph.pagerank(), VertexValues)) is VertexValues
        assert_type(graph.run("bfs", source="ada"), VertexValues)
        assert_type(graph.bfs("ada"), VertexValues)
        assert_type(graph.sssp("ada"), VertexValues)
        assert graph.shortest_path("ada", "grace") == ["ada", "grace"]
        made = [assert_type(graph.subgraph(["ada"]), DynamicGraph), assert_type(graph.at(1), DynamicGraph)]
        made.append(assert_type(graph.copy(structure="csr"), DynamicGraph))
    made.append(assert_type(DynamicGraph.open(tmp_path / "store"), DynamicGraph))
    frame = pd.DataFrame({"source": [0], "target": [1]})
    made.append(assert_type(DynamicGraph.from_pandas(frame), DynamicGraph))
    with DynamicGraph(n_vertices=2, directed=False) as two:
        for found in (assert_type(two.katz_centrality(), VertexValues), two.eigenvector_centrality()):
            assert_type(found, VertexValues)
        assert_type(two.transitivity(), float)
    for one in made:
        assert type(one) is DynamicGraph
        one.close()


def misspelt(frame: pd.DataFrame) -> None:
    """Nobody calls this: mypy finds what is misspelt, since an ignored error that is none is an error to it."""
    g = DynamicGraph(structre="lpma")  # type: ignore[call-arg]  # structure
    g = DynamicGraph(store="roads", lagbytes=3)  # type: ignore[call-arg]  # lag_bytes
    g = DynamicGraph(n_vertices="3")  # type: ignore[arg-type]  # n_vertices
    g = DynamicGraph.from_pandas(frame, weigthed=True)  # type: ignore[call-arg]  # weighted
    g = DynamicGraph.from_arrow(frame, keyz="int64")  # type: ignore[call-arg]  # keys
    g = DynamicGraph.from_polars(frame, windw=3)  # type: ignore[call-arg]  # window
    g = DynamicGraph.from_cudf(frame, revers=True)  # type: ignore[call-arg]  # reverse
    g = DynamicGraph.from_dask(frame, exchang="tcp")  # type: ignore[call-arg]  # exchange
    g = DynamicGraph.from_csv("a.csv", devise="cpu")  # type: ignore[call-arg]  # device
    g = DynamicGraph.from_parquet("a.parquet", stor="roads")  # type: ignore[call-arg]  # store
    g = DynamicGraph.from_dlpack([0], [1], direct=True)  # type: ignore[call-arg]  # directed
    g = DynamicGraph.from_networkx(None, combin="sum")  # type: ignore[call-arg]  # combine
    g = DynamicGraph.from_scipy(None, combine="summ")  # type: ignore[arg-type]  # combine
    g = DynamicGraph.read("a.mtx", balanse=None)  # type: ignore[call-arg]  # balance
    g = DynamicGraph.open("roads", repare=True)  # type: ignore[call-arg]  # repair
    g = DynamicGraph.open("roads", pacience=3)  # type: ignore[call-arg]  # patience
    g = DynamicGraph.open("roads", sync="allways")  # type: ignore[arg-type]  # always
    g = DynamicGraph.open("roads", weighted=True)  # type: ignore[call-arg]  # what the store says
    g = DynamicGraph.load("roads", devise="cpu")  # type: ignore[call-arg]  # device
    g = g.at(3, structre="csr")  # type: ignore[call-arg]  # structure
    g.move_to(exchang="tcp")  # type: ignore[call-arg]  # exchange
    g.copy(structur="csr")  # type: ignore[call-arg]  # structure
    g.page_rank()  # type: ignore[attr-defined]  # pagerank
    g.pagerank(damping=0.85)  # type: ignore[call-arg]  # damping
    g = DynamicGraph.from_pandas(frame, weighted=True, keys=None, directed=False, store="roads", retain=3)
    g = DynamicGraph.open("roads", repair=True, device="cpu", retain=3).at(3, structure="csr")
    g = DynamicGraph(None, 3, window=5, combine="last", lag_seconds=1.5)
