"""A graph in this process where Dask is not installed: in processes of their own that cannot import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dask", "distributed", "tornado", "cloudpickle", "toolz", "zict"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocked())
"""

RUN = """
import numpy as np
from mgraph import DynamicGraph, EdgeBatch, MgraphError
from mgraph.sources.rmat import Rmat

with DynamicGraph(n_vertices=6, weighted=True, directed=False) as g:
    assert g.insert([0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]).inserted == 4
    with g.pipeline() as pipe:
        reports = [pipe.update(EdgeBatch([4], [5])), pipe.update(EdgeBatch([0], [1], op=-1))]
    assert [r.result().epoch for r in reports] == [2, 3]
    assert g.bfs(1).to_numpy().tolist() == [-1, 0, 1, 2, 3, 4]
    assert g.connected_components().components == 2
    assert abs(g.pagerank().to_numpy().sum() - 1) < 1e-5
    assert g.add_vertices(2) == range(6, 8)
    assert g.delete_vertices([2]).deleted == 2
    assert g.ingest(([6], [7]))[0].inserted == 1
    g.rebalance(), g.reorder(), g.memory(), g.fingerprint(), repr(g), g._repr_html_(), g.to_csr()
with DynamicGraph(n_vertices=1 << 8, order="degree", reverse=True) as g:
    assert len(g.ingest(Rmat(8, 500), steps=2)) == 2
    assert g.bfs(1, direction="in", predecessors=True).predecessors.to_numpy()[1] == -1
from mgraph import *
for call, kind, words in (
    (lambda: DynamicGraph("tcp://127.0.0.1:8786", 5), MgraphError, 'pip install "dask-mgraph[cluster]"'),
    (lambda: DynamicGraph(100), TypeError, "for 100 vertices in this process write n_vertices=100"),
    (lambda: DynamicGraph(np.ones(3)), TypeError, "takes a dask.distributed.Client, got ndarray"),
    (lambda: list_graphs(None), TypeError, "give its dask.distributed.Client, not None"),
    (lambda: unpublish(None, "x"), TypeError, "give its dask.distributed.Client, not None"),
    (lambda: list_graphs("tcp://127.0.0.1:8786"), MgraphError, 'pip install "dask-mgraph[cluster]"'),
    (lambda: DynamicGraph.attach(None, "x"), TypeError, "only graphs on a cluster are published"),
):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
assert not {"dask", "distributed"} & set(sys.modules)
print("done")
"""


def run(code: str) -> str:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_a_whole_run_where_dask_cannot_be_imported():
    assert run(BLOCK + RUN) == "done"


def test_importing_mgraph_imports_neither_dask_nor_other_large_packages():
    large = {"dask", "distributed", "pandas", "pyarrow", "scipy", "networkx", "cupy", "asyncio"}
    assert run(f"import mgraph, sys; print(sorted({large} & set(sys.modules)))") == "[]"
    large -= {"asyncio"}  # of pipelines
    assert run(f"from mgraph import DynamicGraph; import sys; print(sorted({large} & set(sys.modules)))") == "[]"


def test_the_benchmarks_of_one_device_need_no_dask():
    declare = "import argparse; from workloads.bench import add_arguments; add_arguments(argparse.ArgumentParser())"
    assert run(BLOCK + declare + "; print('declared')") == "declared"
