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
