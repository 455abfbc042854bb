"""Boundary between users' code and mgraph, for errors, warnings, hints and packages that are missing."""

from __future__ import annotations

import difflib
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mgraph.errors import MgraphError

__all__ = ["ERRORS_END", "Hinted", "at_facade", "facade", "hint", "needed", "type_name", "unknown_argument", "warn"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

PACKAGE = str(Path(__file__).parent)
OPERATORS = {
    "__array_ufunc__",
    "__contains__",
    "__getitem__",
    "__init__",
    "__iter__",
}  #: special methods that `at_facade` wraps too

#: names in other libraries, with mgraph's names for the same
ALIASES = {
    "add_edge": "insert", "add_edges": "insert", "add_edges_from": "insert", "add_weighted_edges_from": "insert",
    "remove_edge": "delete", "remove_edges_from": "delete", "delete_edges": "delete",
    "remove_edges": "delete", "remove_vertices": "delete_vertices", "delete_nodes": "delete_vertices",
    "has_node": "vertices", "nbunch_iter": "to_networkx", "to_edgelist": "to_pandas", "to_numpy": "to_csr",
    "add_node": "add_vertices", "add_nodes_from": "add_vertices", "add_vertex": "add_vertices",
    "remove_node": "delete_vertices", "remove_nodes_from": "delete_vertices",
    "nodes": "vertices", "edges": "to_pandas", "order": "num_vertices", "size": "num_edges",
    "num_nodes": ("num_vertices", "n_vertices"),
    "number_of_nodes": "num_vertices", "number_of_vertices": "num_vertices", "number_of_edges": "num_edges",
    "degree": "degrees", "out_degree": "degrees", "in_degree": "degrees",
    "successors": "neighbors", "predecessors": "neighbors", "adj": "neighbors",
    "get_edge_data": "weights", "components": "connected_components", "communities": "louvain", "diameter": "distances",
    "head": "to_pandas", "to_csv": "to_pandas", "to_dict": "items", "edge_attr": "weight", "is_directed": "directed",
    "create_using": "directed",
    "triangle_count": "triangles", "weakly_connected_components": "connected_components",
    "dijkstra": "sssp", "single_source_shortest_path_length": "bfs", "betweenness": "betweenness_centrality",
    "closeness_centrality": "distances", "from_edgelist": "from_pandas", "from_numpy": "insert",
    "nlargest": "top", "nsmallest": "to_series", "idxmax": "top", "argmax": "top", "sort_values": "top",
    "unique": "value_counts", "describe": ("to_series", "metrics"), "std": "to_series",
    "tail": "to_series", "values": "to_numpy", "index": "ids",
    "damping": "alpha", "damping_factor": "alpha", "max_iterations": "max_iter", "maxiter": "max_iter",
    "tolerance": "tol", "start_vertex": "source", "start_node": "source", "root": "source", "dst": "target",
    "src": "source", "weights": "weight", "n_nodes": ("num_vertices", "n_vertices"), "dtype_id": "keys",
    "num_vertices": "n_vertices", "n": "n_vertices", "destination": "target", "renumber": "keys",
    "n_iter": "iterations", "random_state": "seed", "gamma": "resolution", "ebunch": "pairs", "radius": "k",
    "hops": "k", "num_neighbors": "fanouts", "walk_length": "length", "ego_graph": "ego",
    "uniform_neighbor_sample": "sample_neighbors", "is_connected": "connected_components",
    "average_clustering": "clustering", "has_path": "distances", "closeness": "distances",
    "all_pairs_shortest_path_length": "distances", "tolist": "to_numpy", "to_list": "to_numpy", "sep": "delimiter",
    "from_edges": "from_pandas", "from_pandas_edgelist": "from_pandas", "from_pandas_adjacency": "from_scipy",
    "from_csr": "from_scipy", "from_scipy_sparse_array": "from_scipy", "read_csv": "from_csv",
    "read_parquet": "from_parquet", "read_edgelist": "read", "edge_list": "to_pandas", "to_dataframe": "to_pandas",
    "to_df": "to_pandas", "to_frame": "to_pandas", "to_pandas_edgelist": "to_pandas",
    "to_scipy_sparse_array": "to_scipy", "adjacency_matrix": "to_scipy", "stats": "metrics",
    "jaccard_coefficient": "jaccard", "clustering_coefficient": "clustering",
    "louvain_communities": "louvain", "leiden_communities": "leiden", "bellman_ford": "sssp", "delta_stepping": "sssp",
    "wcc": "connected_components", "scc": "strongly_connected_components", "lpa": "label_propagation",
    "personalized_pagerank": "pagerank", "sample": "sample_neighbors", "neighbors_sample": "sample_neighbors",
    "node2vec": "random_walks", "node_count": "num_vertices", "vertex_count": "num_vertices", "edge_count": "num_edges",
    "version": "epoch", "bfs_tree": "bfs", "bfs_edges": "bfs", "compute": "to_numpy",
    "sources": "k", "add": "insert", "insert_edge": "insert", "insert_edges": "insert", "upsert": "insert",
    "update_edges": "update", "timeout": "patience", "ttl": "window", "shutdown": "close", "stop": "close",
    "to_parquet": "to_pandas", "get_edges": "to_pandas", "view_edge_list": "to_pandas", "edge_index": "to_pyg",
    "from_edge_list": "from_pandas", "from_file": "read", "write": "save", "checkpoint": "snapshot", "restore": "open",
    "consume": "follow", "subscribe": "maintain", "watch": "maintain", "repartition": "rebalance", "nnz": "num_edges",
    "uniform_random_walk": "random_walks", "k_core_decomposition": "core_number", "coreness": "core_number",
    "local_clustering_coefficient": "clustering", "egonet": "ego", "gpu": "cuda",
}  # fmt: skip

#: remedies for names that have no single counterpart
REMEDIES = dict.fromkeys(("depth_limit", "cutoff"), "; k_hop finds the vertices within k edges")

logger = logging.getLogger(__name__)


def facade(function: F) -> F:
    """Raise errors of `function` at the user's call, without the frames inside mgraph.

    The full traceback is logged at level "debug". An unknown argument gets a hint.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MgraphError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                logger.debug("%s failed", function.__qualname__, exc_info=error)
            raise error.with_traceback(None)  # noqa: B904  the same error
        except TypeError as error:
            # An argument that a method hands on to the constructor may be meant for the method.
            if (unknown := getattr(error, "unknown", None)) is not None and function.__name__ != "__init__":
                name, known = unknown
                known = [*inspect.signature(function).parameters, *known]
                raise unknown_argument(name, known, function.__name__) from None
            # An error with further frames was raised inside; only wrong arguments get a hint.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise TypeError(f"{error}{_argument_hint(function, args, kwargs)}") from None

    return call  # type: ignore[return-value]


class Hinted(type):
    """The class of a class whose missing attributes get a hint."""

    if not TYPE_CHECKING:  # type checkers must see unknown names

        def __getattr__(cls, name: str) -> NoReturn:
            close = "" if name.startswith("_") else hint(name, dir(cls))
            raise AttributeError(f"{cls.__name__} has no {name!r}{close}")


class _ErrorsEnd:
    """Context manager that drops its inner frames from mgraph's errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> None:
        if isinstance(error, MgraphError):
            error.__traceback__ = None


ERRORS_END = _ErrorsEnd()  #: replaces `facade` in methods that other calls use, where a frame would cost time


def at_facade(cls: C) -> C:
    """Wrap all public methods of a class in `facade`, except `run`."""
    # Operators and class methods are wrapped too.
    for name, member in list(vars(cls).items()):
        if name == "run" or (name.startswith("_") and name not in OPERATORS):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, facade(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(facade(member.__func__)))
    return cls


def _argument_hint(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parameters = inspect.signature(function).parameters
    return next((hint(name, parameters) for name in kwargs if name not in parameters), "")


def unknown_argument(name: str, known: Iterable[str], function: str = "DynamicGraph") -> TypeError:
    """Return the error for an argument that is none of the `known` ones."""
    error = TypeError(f"{function} takes no argument {name!r}{hint(name, known)}")
    error.unknown = name, known  # type: ignore[attr-defined]
    return error


def hint(name: Any, known: Iterable[str], instead: str = "") -> str:
    """Return a suggestion for an unknown `name`, a function's too; empty without a match.

    `instead` goes before names with a similar spelling.
    """
    name = name if isinstance(name, str) else str(getattr(name, "__name__", ""))
    public = [other for other in known if not other.startswith("_")]
    aliases = ALIASES.get(name, ())
    close = [alias for alias in ([aliases] if isinstance(aliases, str) else aliases) if alias in public]
    instead = instead or REMEDIES.get(name, "")
    close = close or ([] if instead else difflib.get_close_matches(name, public, 1, 0.75))
    return f"; did you mean {close[0]!r}?" if close else instead


def needed(module: str, purpose: str, install: str = "") -> ModuleType:
    """Import a module of an optional package.

    Raises `MgraphError` with the remedy if it is not installed, or if a package that it needs is not.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package, missing = (name.partition(".")[0] for name in (module, error.name or module))
        remedy = install if install and missing == package else missing
        raise MgraphError(f"{purpose} needs {missing}: pip install {remedy}") from None
    except ImportError as error:
        raise MgraphError(f"{purpose} needs {module}, which cannot be imported: {error}") from error


def type_name(value: object) -> str:
    """Return the name of a value's type for messages, with its library: several have a DataFrame."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library in ("builtins", "mgraph") else f"{library}.{kind.__qualname__}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called mgraph."""
    # Find the first frame outside the package.
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
