"""Misspelt options, arguments and attributes: errors say what was meant. mypy finds them, too: see test_types.py."""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path

import networkx as nx
import pandas as pd
import pytest

import mgraph
from mgraph import DynamicGraph, InvalidOption, MgraphError
from mgraph.client.options import GraphOptions, StoreOptions


def test_signatures_name_the_options() -> None:
    signature = inspect.signature(DynamicGraph)
    assert list(signature.parameters)[:4] == ["client", "n_vertices", "keys", "structure"]
    named = {name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert named | set(StoreOptions.__annotations__) == set(GraphOptions.__annotations__)
    assert "**logging: 'Unpack[StoreOptions]'" in str(signature)
    makers = [name for name in dir(DynamicGraph) if name.startswith("from_")] + ["read"]
    assert len(makers) == 11
    calls = {"open": "Open", "at": "Open", "load": "Place", "move_to": "Place"}
    for name, options in calls.items():
        assert f"**options: 'Unpack[{options}Options]'" in str(inspect.signature(getattr(DynamicGraph, name))), name
    for name in makers:
        *_, options = inspect.signature(getattr(DynamicGraph, name)).parameters.values()
        assert re.fullmatch(r"Unpack\[(Graph|Weight|Direction)Options\]", options.annotation), name
    assert list(inspect.signature(DynamicGraph.insert).parameters)[:3] == ["self", "src", "dst"]


def meant(error: pytest.ExceptionInfo) -> str:
    found = re.search(r"did you mean '(\w+)'\?", str(error.value))
    assert found, error.value
    return found[1]


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda g: DynamicGraph(weigthed=True), "weighted"),
        (lambda g: DynamicGraph(structre="csr"), "structure"),
        (lambda g: DynamicGraph(num_vertices=3), "n_vertices"),
        (lambda g: DynamicGraph.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), weigthed=True), "weighted"),
        (lambda g: DynamicGraph.from_networkx(nx.path_graph(2), revers=True), "reverse"),
        (lambda g: DynamicGraph.open("nowhere", pacience=3), "patience"),
        (lambda g: DynamicGraph.open("nowhere", repare=True), "repair"),
        (lambda g: DynamicGraph.load("nowhere", devise="cpu"), "device"),
        (lambda g: g.pagerank(damping=0.85), "alpha"),
        (lambda g: g.bfs(start_vertex=0), "source"),
        (lambda g: g.insert([0], [1], wieght=[1]), "weight"),
        (lambda g: g.run("pagerank", damping=0.85), "alpha"),
        (lambda g: g.run("bfs", sorce=0), "source"),
        (lambda g: g.run("page_rank"), "pagerank"),
        (lambda g: g.maintain("pagerankk"), "pagerank"),
        (lambda g: g.page_rank(), "pagerank"),
        (lambda g: g.jaccard_coefficient(), "jaccard"),
        (lambda g: g.to_dataframe(), "to_pandas"),
        (lambda g: DynamicGraph.from_edges([0], [1]), "from_pandas"),
        (lambda g: DynamicGraph.read_csv("edges.csv"), "from_csv"),
        (lambda g: g.add_edge(0, 1), "insert"),
        (lambda g: g.number_of_nodes(), "num_vertices"),
        (lambda g: g.pagerank().tonumpy(), "to_numpy"),
        (lambda g: g.pagerank().iteration, "iterations"),
        (lambda g: g.pagerank().nlargest(3), "top"),
    ],
)
def test_errors_say_what_was_meant(call, want) -> None:
    with (
        DynamicGraph(n_vertices=3, directed=False) as g,
        pytest.raises((TypeError, AttributeError, InvalidOption)) as error,
    ):
        call(g)
    assert meant(error) == want


def test_names_that_are_like_nothing_get_no_hint() -> None:
    with DynamicGraph(n_vertices=3) as g:
        for call in (lambda: g.xyzzy, lambda: g.pagerank(xyzzy=1), lambda: DynamicGraph(xyzzy=1), lambda: g._xyzzy):
            with pytest.raises((TypeError, AttributeError), match="xyzzy") as error:
                call()
            assert "did you mean" not in str(error.value)
        assert not hasattr(g, "__array__")


def test_errors_are_raised_where_the_user_called(place) -> None:
    with DynamicGraph(place, n_vertices=3, directed=False) as g:
        ranks = g.pagerank()
        calls = [
            lambda: g.insert([0], [9]),
            lambda: g.bfs(7),
            lambda: g.pagerank(alpha=2),
            lambda: g.run("pagerank", tol=-1),
            lambda: g.maintain("modularity"),
            lambda: DynamicGraph(place, structure="none"),
            lambda: DynamicGraph.read("nowhere.csv"),
            lambda: ranks[9],
            lambda: ranks.top(-1),
            lambda: ranks + "a",
            lambda: g.connected_components().sum(),
            lambda: g.shortest_path(0, 2),
        ]
        for call in calls:
            with pytest.raises(MgraphError) as error:
                call()
            frames = [Path(frame.filename) for frame in traceback.extract_tb(error.value.__traceback__)]
            inside = [frame.name for frame in frames if frame.is_relative_to(Path(mgraph.__file__).parent)]
            assert inside in (["facade.py"], []), frames  # none, where `run` ends the traceback
            assert frames[0] == Path(__file__)


def test_the_whole_traceback_is_logged(caplog) -> None:
    with caplog.at_level("DEBUG", "mgraph.facade"), DynamicGraph(n_vertices=3) as g, pytest.raises(MgraphError):
        g.insert([0], [9])
    assert "check_ids" in caplog.text
