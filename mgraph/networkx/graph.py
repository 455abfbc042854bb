"""`Graph` and `DiGraph`: NetworkX's graph classes over a `DynamicGraph` in this process."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import networkx as nx
from networkx import convert

from mgraph.networkx.adjacency import Adjacency
from mgraph.networkx.contents import KEEP, Contents, Refused
from mgraph.networkx.extract import attribute_names, filled_contents

__all__ = ["DiGraph", "Graph"]


class Graph(nx.Graph):
    """An undirected NetworkX graph whose edges are in a `DynamicGraph`, as from ``nx.Graph(backend="mgraph")``.

    It has the methods of ``nx.Graph``. Changes are buffered: the next read applies them as one batch. Nodes, their
    attributes and those of the graph are in Python dicts. Edges have one numeric attribute, stored as float32: the
    first one that is named. An edge without a value has 1.

    Parameters
    ----------
    incoming_graph_data : optional
        The input of ``nx.Graph``.
    **attr
        Attributes of the graph.

    Raises
    ------
    networkx.NetworkXError
        From methods with a second edge attribute, or a value that is no number: `Refused`, with the name and the edge.
        That edge and later ones are not added.

    Notes
    -----
    `add_edge` is O(1); so is `has_edge`, with a call of the `DynamicGraph` unless the edge is among the buffered
    changes. Reading a row is a call. Removing a node reads its rows; the first algorithm afterwards takes O(n + m) to
    renumber the nodes. Neighbours come in the order in which the nodes were added.

    Examples
    --------
    >>> G = nx.Graph(backend="mgraph")  # doctest: +SKIP
    >>> G.add_edges_from([("ada", "grace"), ("grace", "edsger")])  # doctest: +SKIP
    >>> nx.pagerank(G)["grace"]  # doctest: +SKIP
    0.4864864864864864
    """

    __networkx_backend__ = "mgraph"
    _directed = False
    _source: Any = None  #: the converted multigraph, as a weak reference, and its attribute

    def __new__(cls, *args: Any, **attr: Any) -> Any:
        """Return an uninitialised object: NetworkX's own `__new__` asks the backends."""
        return object.__new__(cls)

    def __init__(self, incoming_graph_data: Any = None, **attr: Any) -> None:
        self.graph = self.graph_attr_dict_factory()
        self._node = self.node_dict_factory()
        self._adopt(Contents(self._directed))
        if isinstance(incoming_graph_data, nx.Graph) and not incoming_graph_data.is_multigraph():
            self._take(incoming_graph_data)
        elif incoming_graph_data is not None:
            convert.to_networkx_graph(incoming_graph_data, create_using=self)
        attr.pop("backend", None)
        self.graph.update(attr)

    def _adopt(self, contents: Contents) -> None:
        """Set the nodes and edges."""
        self._contents, self._rows = contents, Adjacency(contents)
        self._cache: tuple[int, dict[str, Any]] = (contents.edits, {})

    def _merge(self, merged: str, weight: Hashable) -> None:
        """Convert the edges of the source multigraph again, and merge parallel ones by another rule.

        Edges without the attribute `weight` count 1, unless the conversion that made this graph had another default.

        Raises `Refused` if the source is gone, or this graph was changed since.
        """
        source = None if self._source is None or self._contents.edits else self._source[0]()
        if source is None:
            raise Refused(f"parallel edges were made one by another function's rule; {merged!r} is needed here")
        wanted = self._source[1]
        self._adopt(filled_contents(source, wanted if weight in wanted else {weight: 1}, merged))

    @classmethod
    def _of(cls, contents: Contents, node: dict[Any, dict]) -> Any:
        """Return a graph of filled contents. `node` has the attributes of each node, in order."""
        graph = cls()
        graph._adopt(contents)
        graph._node.update(node)
        return graph

    def _take(self, graph: nx.Graph) -> None:
        """Begin with the nodes, edges and attributes of another graph."""
        # Copy the edges: by arrays if the directions agree, one by one if not.
        if isinstance(graph, Graph) and graph._directed == self._directed:
            self._adopt(graph._contents.clone())
        elif graph.is_directed() == self._directed:
            self._adopt(filled_contents(graph, dict.fromkeys(attribute_names(graph), 1)))
        else:
            self.add_nodes_from(graph)
            self.add_edges_from(graph.edges(data=True))
            if self._directed:
                self.add_edges_from((v, u, data) for u, v, data in graph.edges(data=True))

        # Copy the attributes.
        self._node.update((node, dict(data)) for node, data in graph.nodes(data=True))
        self.graph.update(graph.graph)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": (-1, {}), "_source": None}  # a copy has no source

    # ---- reads -------------------------------------------------------------------------------------------------------

    @property
    def __networkx_cache__(self) -> dict[str, Any]:
        """NetworkX's cache of conversions of this graph; emptied by a change of nodes or edges."""
        if self._cache[0] != self._contents.edits:
            self._cache = (self._contents.edits, {})
        return self._cache[1]

    @property
    def _adj(self) -> Any:
        return self._rows

    @_adj.setter
    def _adj(self, rows: Any) -> None:
        self._become_view(nx.Graph)
        self._adj = rows

    def _become_view(self, plain: type) -> None:
        """Become a plain graph of NetworkX, which `nx.subgraph_view` and its like fill with filtered rows."""
        for own in ("_contents", "_rows", "_back", "_cache"):
            self.__dict__.pop(own, None)
        self.__class__ = plain
        self.__dict__["__networkx_cache__"] = {}

    def has_edge(self, u: Hashable, v: Hashable) -> bool:
        """Return True if the edge exists. Buffered changes stay buffered."""
        contents = self._contents
        try:
            with contents.lock:
                return contents.has_edge(contents.index[u], contents.index[v])
        except KeyError:
            return False

    def size(self, weight: Hashable | None = None) -> int | float:
        """Return the number of edges, or the sum of their values."""
        if weight is None:
            return self._contents.flushed().num_edges
        return super().size(weight)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _id(self, node: Hashable) -> int:
        """Return the id of a node. A new node is added."""
        i = self._contents.index.get(node)
        if i is None:
            if node is None:
                raise ValueError("None cannot be a node")
            i = self._contents.add_node(node)
            self._node.setdefault(node, self.node_attr_dict_factory())
        return i

    def add_node(self, node_for_adding: Hashable, **attr: Any) -> None:
        """Add a node, or change its attributes."""
        self._id(node_for_adding)
        self._node[node_for_adding].update(attr)
        nx._clear_cache(self)

    def add_nodes_from(self, nodes_for_adding: Iterable[Any], **attr: Any) -> None:
        """Add nodes, each alone or with a dict of its attributes."""
        for node in nodes_for_adding:
            attributes = attr
            try:
                hash(node)
            except TypeError:  # a pair of a node and its attributes
                node, own = node
                attributes = {**attr, **own}
            self._id(node)
            self._node[node].update(attributes)
        nx._clear_cache(self)

    def remove_node(self, n: Hashable) -> None:
        """Remove a node and its edges. Raises `NetworkXError` if it is not there."""
        if n not in self._node:
            raise nx.NetworkXError(f"The node {n} is not in the graph.")
        self.remove_nodes_from([n])

    def remove_nodes_from(self, nodes: Iterable[Hashable]) -> None:
        """Remove the present nodes among `nodes`, and their edges."""
        present = [node for node in dict.fromkeys(nodes) if node in self._node]
        if present:
            self._contents.remove_nodes(present)
        for node in present:
            del self._node[node]

    # ---- edges -------------------------------------------------------------------------------------------------------

    def add_edge(self, u_of_edge: Hashable, v_of_edge: Hashable, **attr: Any) -> None:
        """Add an edge and its ends, with an optional attribute."""
        value = self._contents.value((u_of_edge, v_of_edge), attr) if attr else KEEP
        with self._contents.lock:
            self._contents.put(self._id(u_of_edge), self._id(v_of_edge), value)

    def add_edges_from(self, ebunch_to_add: Iterable[Any], **attr: Any) -> None:
        """Add edges: pairs of nodes, or triples with a dict of the attribute."""
        for edge in ebunch_to_add:
            if len(edge) not in (2, 3):
                raise nx.NetworkXError(f"Edge tuple {edge} must be a 2-tuple or 3-tuple.")
            u, v = edge[:2]
            attributes = {**attr, **edge[2]} if len(edge) == 3 else attr
            value = self._contents.value((u, v), attributes) if attributes else KEEP
            with self._contents.lock:
                self._contents.put(self._id(u), self._id(v), value)

    def remove_edge(self, u: Hashable, v: Hashable) -> None:
        """Remove an edge. Raises `NetworkXError` if it is not there."""
        if not self.has_edge(u, v):
            raise nx.NetworkXError(f"The edge {u}-{v} is not in the graph")
        self.remove_edges_from([(u, v)])

    def remove_edges_from(self, ebunch: Iterable[Any]) -> None:
        """Remove edges; absent ones are ignored."""
        contents = self._contents
        for u, v, *_ in ebunch:
            with contents.lock:
                index = contents.index
                if u in index and v in index:
                    contents.remove_edge(index[u], index[v])

    def clear(self) -> None:
        """Remove all nodes, edges and attributes."""
        self._contents.clear()
        self._node.clear()
        self.graph.clear()

    def clear_edges(self) -> None:
        """Remove all edges; the nodes stay."""
        self._contents.clear_edges()

    # ---- other graphs ------------------------------------------------------------------------------------------------

    def copy(self, as_view: bool = False) -> Any:
        """Return a live copy with the same nodes, edges and attributes, or a view."""
        return super().copy(as_view=True) if as_view else type(self)(self)

    def to_directed_class(self) -> type:
        """Return the class of `to_directed`."""
        return DiGraph

    def to_undirected_class(self) -> type:
        """Return the class of `to_undirected`."""
        return Graph


class DiGraph(Graph, nx.DiGraph):
    """A directed NetworkX graph whose edges are in a `DynamicGraph`, with in-edges."""

    _directed = True

    def _adopt(self, contents: Contents) -> None:
        super()._adopt(contents)
        self._back = Adjacency(contents, "in")

    @property
    def _succ(self) -> Any:
        return self._rows

    @_succ.setter
    def _succ(self, rows: Any) -> None:
        self._become_view(nx.DiGraph)
        self._succ = rows

    _adj = _succ

    @property
    def _pred(self) -> Any:
        return self._back

    @_pred.setter
    def _pred(self, rows: Any) -> None:
        self._become_view(nx.DiGraph)
        self._pred = rows
