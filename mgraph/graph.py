"""`DynamicGraph`: a graph that changes in batches, in this process or on a Dask cluster."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

from mgraph import algorithms, convert, local, plotting
from mgraph.checks import check_count, check_flag
from mgraph.client.asynchronous import AsyncDynamicGraph, either, on_its_loop
from mgraph.client.batches import mixed, windows
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.batches.source_ingest import Ingest
from mgraph.client.batches.updates import Updates
from mgraph.client.batches.windows import window_of
from mgraph.client.calls.caller import Caller
from mgraph.client.creation.copying import copy
from mgraph.client.creation.moving import move_to
from mgraph.client.creation.place import NO_DASK, Place, not_a_client
from mgraph.client.creation.restoring import make_graph, open_stored
from mgraph.client.inputs.following import follow
from mgraph.client.inputs.source_parts import AsParts
from mgraph.client.inputs.streaming import stream
from mgraph.client.options import Options, StoreOptions, fixed_order, keys_of
from mgraph.client.published import publishing
from mgraph.client.reads import queries
from mgraph.client.reads.diff import changes
from mgraph.client.reads.properties import Properties
from mgraph.client.reports.history import history
from mgraph.client.reports.metrics import metrics
from mgraph.client.reports.report import Balance, UpdateReport
from mgraph.client.results import maintained
from mgraph.client.stores import store_methods
from mgraph.client.stores.storing import Storing, store_options
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import InvalidOption, MgraphError
from mgraph.facade import Hinted, at_facade, hint
from mgraph.protocol import PATIENCE_SECONDS

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DynamicGraph", "UpdateReport"]


@at_facade
class DynamicGraph(Properties, metaclass=Hinted):
    """Dynamic graph with unique edges and optional float32 weights.

    It changes in batches, in this process or on the workers of a Dask cluster. Algorithms run on the graph as it is
    after the last committed batch.

    Parameters
    ----------
    client : distributed.Client, optional
        A client of any Dask cluster. This process opens connections to the workers, so it must reach them.
        Without a client the graph is in this process, on its GPU or CPU, and Dask is not imported. With an asynchronous
        client, ``async with DynamicGraph(client, ...)`` gives an `mgraph.AsyncDynamicGraph`, whose calls are
        coroutines.
    n_vertices : int, optional
        The number of vertices. Their ids are 0 .. n_vertices - 1; `add_vertices` adds more. Without it the vertices
        have keys, or the graph grows to the largest id in an `insert`, `delete`, `update` or `stream`. The largest id
        that it grows to is ``16 * vertices + 2**20``, or 32 times the batch's edges if that is more. `pipeline` takes
        only existing ids, and so does `ingest`, except for the first edges of a graph with ``keys="auto"``.
    keys : "int64" | "string" | None | "auto"
        The users' names of vertices. "int64" and "string": keys, which are any integers of 64 bits, or strings; each
        new key is a new vertex. None: the ids 0, 1 and so on. "auto": a graph with `n_vertices` has no keys; otherwise
        the first edges decide. Strings become keys, and so do integers, unless all lie in ``0 .. 4 * n + 1024``, where
        n is the number of different ones. In a graph with keys every input and every result uses keys, except for
        ``to_numpy()``, where vertices are positions in `vertices`. A deletion adds no vertex: an edge with an unknown
        end counts as missing.
    structure : str
        The data structure on each worker: one of `mgraph.structures.names()`, with options as in "slabgraph:slab=32".
        "auto" takes "lpma" on the CPU for a graph without `n_vertices`, which grows, and otherwise "gpma+".
    weighted : bool
        True if edges have a weight. Edges inserted without one get weight 1.
    combine : "last" | "sum" | "min" | "max"
        The weight of an edge that is inserted again, in the same batch or later: the last weight, or the sum, the
        minimum or the maximum of all. All but "last" need ``weighted=True``. A deletion discards the weights before it.
        Edges inserted without a weight have weight 1, so "sum" counts their insertions. Sums are float32, in stream
        order; inf and -inf add up to NaN. A sum has about 7 digits: rounding errors accumulate (100,000 insertions of
        1000.01 store 100,000,008), and weights below about a 16-millionth of the sum change nothing, so a count stops
        at 16,777,216. A sum past 3.4e38 becomes inf. A warning says so once if float32 changes a weight, and if a
        weight does not change its sum, or makes it inf.
    directed : bool
        True if edges have a direction. In an undirected graph each edge is stored both ways and counts once.
    reverse : bool
        Store the in-edges of a directed graph too, which doubles its memory. Pull-based PageRank, bottom-up BFS and
        ``bfs(direction="in")`` use them.
    order : "degree" or array of ints, shape (n_vertices,), optional
        The internal numbering of the vertices. Each worker owns a range of the internal ids; calls take and return
        users' ids only. An array gives the internal id of each vertex and must be a permutation. With "degree", the
        first `insert`, `update` or `ingest` that leaves edges is followed by a `reorder`: vertices are dealt to the
        workers in turn, by descending degree. PageRank's and BFS's values for hubs then share cache lines, and the
        workers have about equally many edges. Of vertices of equal degree each worker gets consecutive ones.
    balance : None, "vertices" or array of ints, shape (n_vertices,)
        The partition of the vertices into the workers' ranges: equally many vertices each (None, "vertices"), or about
        equal work each, given the degree of every vertex.
    workers : list of str, optional
        Addresses of the workers that hold the graph, at most 64. Default: all workers of the cluster.
    exchange : "auto" | "loopback" | "peer" | "peer+tcp" | "peer+ucx" | "tcp" | "ucx"
        The way in which the workers communicate. "auto" chooses peer between workers that can map each other's memory,
        as those of one host and user can. Between others it chooses UCX for GPUs, and TCP on CPUs and on clusters with
        TLS.
    device : "auto" | "cpu" | "cuda"
        The device that stores the graph. "auto" chooses GPUs if every worker has one.
    reserve : int
        Bytes of GPU memory that each worker allocates at creation and keeps for the graph until `close`, so that
        batches do not wait for the driver's allocations. Ignored on the CPU.
    patience : float
        Seconds without a message from a worker after which it counts as lost. A closed connection counts as a loss at
        once. After 8 seconds without a message, a warning is logged. Workers that connect to each other wait as long.
        Without a client, `patience`, `workers` and `exchange` have no use.
    times : bool | "int64" | "datetime64[unit]", optional
        The dtype of the edges' times, if they have times; True is int64. An edge that is inserted again has its last
        time. `insert` and `update` then need times, and `neighbors` and `to_csr` return them.
    window : timedelta, str or int, optional
        Keep only recent edges: those later than the largest time seen minus `window`. For datetime64 times (by default
        datetime64[ns]) it is a timedelta or a string such as "1h" or "7 days"; for integer times, a whole number. Older
        edges are removed with the batch that moves the window, in the same epoch. A new edge that is older than the
        window is not inserted, and counts as `late`; in a graph that grows its ends still become vertices. `combine`
        combines the insertions inside the window.
    window_edges : int, optional
        Keep at most this many edges: each batch removes the oldest ones, in the same epoch; among edges of the same
        time, those with the least source and destination, by key in a graph with keys. A new edge that would be removed
        at once is `late`.
    drop_isolated : bool
        Remove vertices that have no edge after a batch, in the same epoch; in a `pipeline`, after its last batch. The
        graph needs `keys`. When vertices are removed, each worker rebuilds its part of the graph.
    store : path, optional
        A folder in which every change is logged: on a file system that all workers share, or with ``disks="local"`` on
        a disk of each worker. It must not hold a store yet: `DynamicGraph.open` opens one.
    sync : "always" | "background"
        The point at which a change is acknowledged: once it is on the disk of every worker ("always"), or once it is
        written, while another thread syncs it to the disk ("background"). In the background, a machine that stops may
        lose the epochs after `durable_epoch`; a killed process loses none.
    **logging
        Further options of the store:

        - `lag_bytes` (default 256 MiB) and `lag_seconds` (1), with ``sync="background"``: limits of a worker's unsynced
          bytes and of their age; changes wait above either. A worker with a GPU takes 1.25 times as much of /dev/shm, 1
          GiB at most, so as not to wait for writes.
        - `snapshot_bytes` (4 GiB): take a snapshot when all workers together have logged more since the last one; 0 for
          never.
        - `retain` (2): the number of snapshots to keep. Older ones are removed, and so is the log before the oldest of
          them: earlier epochs can no longer be opened. 0 keeps all.
        - `recover` (None): with "auto" the graph is reopened from its store when a worker is lost, and the interrupted
          call continues.
        - `max_recoveries` (3): consecutive recoveries without a successful call in between, after which the call
          raises.
        - `snapshots`: a folder for the snapshots, or a URL of fsspec such as "s3://bucket/roads", instead of the
          store's folder.
        - `disks` ("shared"): "local" keeps each worker's part on a disk of its own; see the guide.

    Raises
    ------
    TypeError
        `client` is not a `distributed.Client`.
    InvalidOption
        A name is unknown, options contradict each other, the cluster has no workers, or `order` is not a permutation.
    CapacityError
        The vertices are more than 32-bit ids allow, or than fit into memory.
    DeviceError
        GPUs were asked for and a worker has none, or a worker has no compiler.
    WorkerLost
        A worker cannot be reached.

    Notes
    -----
    Use the graph as a context manager, or call `close`: the workers hold its memory until then, or until this process
    ends. Several threads may call it; their calls run one after another. If a worker dies, the graph comes back from
    its store with ``recover="auto"``. Otherwise it is lost: every later call raises `WorkerLost` or `GraphLost`, and
    only `close` still works. A worker that is retired or removed by adaptive scaling counts as dead. After Ctrl-C a
    batch is applied whole or not at all.

    Examples
    --------
    >>> with DynamicGraph(n_vertices=4) as g:  # in this process; DynamicGraph(client, n_vertices=4) on a cluster
    ...     g.insert([0, 1, 2], [1, 2, 3]).inserted
    ...     g.bfs(0).to_numpy()
    3
    array([0, 1, 2, 3], dtype=int32)
    """

    if not TYPE_CHECKING:  # type checkers must see unknown names

        def __getattr__(self, name: str) -> NoReturn:
            # NetworkX's functions ask any object for the names that they need.
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if name == "adj" and caller == "networkx.convert":  # without it, nx.Graph(g) reads vertices as edges
                raise TypeError("a DynamicGraph is no graph of NetworkX; its to_networkx() makes one")
            instead = "; a function of NetworkX takes to_networkx()" if caller.startswith("networkx.") else ""
            raise AttributeError(f"a DynamicGraph has no {name!r}{instead or hint(name, dir(type(self)))}")

    def __new__(cls, client: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Return a graph, or an `AsyncDynamicGraph` on the event loop of an asynchronous client."""
        if on_its_loop(client):
            return cast("Self", AsyncDynamicGraph(lambda: cls(client, *args, **kwargs)))
        return super().__new__(cls)

    def __init__(
        self,
        client: Client | None = None,
        n_vertices: int | None = None,
        *,
        keys: str | None = "auto",
        structure: str = "gpma+",
        weighted: bool = False,
        combine: str = "last",
        directed: bool = True,
        reverse: bool = False,
        order: Any = None,
        balance: Any = None,
        workers: Sequence[str] | None = None,
        exchange: str = "auto",
        device: str = "auto",
        reserve: int = 0,
        patience: float = PATIENCE_SECONDS,
        times: Any = None,
        window: Any = None,
        window_edges: int | None = None,
        drop_isolated: bool = False,
        store: Any = None,
        sync: str = "always",
        **logging: Unpack[StoreOptions],
    ) -> None:
        # Check the arguments and make the options. The numbering waits for the number of ranks.
        how = (
            structure, check_flag(weighted, "weighted"), check_flag(directed, "directed"),
            check_flag(reverse, "reverse"), exchange, device, reserve, patience,
        )  # fmt: skip
        options = Options(
            *how,
            n_vertices is None,
            combine,
            keys_of(keys, n_vertices),
            **window_of(times, window, window_edges, drop_isolated),
        )
        numbering = partial(_numbering, n_vertices, order, balance)
        self._client, self._storing = client, store_options(store, sync, logging)

        # Create the graph on its place, with the first `reorder` due if the order is by degree.
        place, due = _place(client, workers, exchange), isinstance(order, str)
        self._directory, self._options, parts = make_graph(place, options, numbering, self._storing, due)
        self._updates = Updates(self._directory, self._options, order_due=due, logged=self._storing is not None)
        self._ingest = Ingest(self._updates, self._directory, parts)

    @classmethod
    def _opened(cls, client: Client | None, storing: Storing, options: dict[str, Any], **how: Any) -> DynamicGraph:
        """Return a graph opened from its store."""
        graph = cls.__new__(cls)
        graph._client, graph._storing, graph._as_of = client, storing if how["logged"] else None, how.get("epoch")
        graph._directory, graph._options, parts = open_stored(cls._placed(client, options), storing, options, **how)
        due = isinstance(options.get("order"), str)
        graph._updates = Updates(graph._directory, graph._options, order_due=due, logged=how["logged"])
        graph._ingest = Ingest(graph._updates, graph._directory, parts)
        graph._updates.order_first()
        return graph

    @staticmethod
    def _placed(client: Client | None, options: dict[str, Any]) -> Place:
        return _place(client, options.get("workers"), options.get("exchange", "auto"))

    def _beside(self, patience: float, advice: str) -> tuple[Caller, AsParts]:
        """Begin another graph in the place of this one, as `mgraph.client.creation.place.Place.begin`.

        `advice` is added to the error after the loss of a worker.
        """
        if self._client is None:
            return local.Here(None, "auto").begin(patience)
        from mgraph.client.creation.placement import beside  # it imports Dask

        return beside(self._client, self.workers, patience, advice)

    _as_of: int | None = None  #: the epoch of a graph opened at an earlier epoch, read-only
    _published: str | None = None  #: the name for other clients

    # ---- changes: those by arrays and tables are defined in mgraph/convert, bound here -------------------------------

    delete = convert.delete
    ingest = convert.ingest
    insert = convert.insert
    update = convert.update

    expire = windows.expire
    drop_isolated = windows.drop_isolated

    def pipeline(self, max_bytes: int = 1 << 28) -> Pipeline:
        """Return a pipeline that sends batches while the workers apply earlier ones.

        Use it as ``with g.pipeline() as p: p.update(b)``. Batches are committed in the order of the calls. Other calls
        of the graph wait until the batches in flight are committed. With ``order="degree"``, a first batch sent through
        a pipeline is not followed by the `reorder`; call `reorder` afterwards. Batches do not overlap while results are
        maintained with ``eager=True``, since each batch updates them. `mgraph.client.batches.pipeline.Pipeline`
        describes reports and errors.

        Parameters
        ----------
        max_bytes : int
            Maximum bytes of batches in flight; the pipeline's `update` waits above it. Each worker holds its part.
        """
        return self._updates.pipeline(max_bytes)

    def add_vertices(self, n: Any) -> range:
        """Add `n` vertices without edges and return the range of their ids.

        This takes one epoch. In a graph with keys, `n` is an array of keys. New keys are added, and the range has their
        positions in `vertices`. All workers add them, or none does. The last worker owns the new vertices.

        Raises
        ------
        CapacityError
            The vertices would be more than 32-bit ids allow, or than fit into a worker's memory. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.
        """
        return self._updates.add_vertices(n)

    def delete_vertices(self, ids: Any) -> UpdateReport:
        """Delete every edge to and from `ids` in one batch.

        `ids` has the shape (n,). The ids stay valid, with degree 0. In a graph with keys, `ids` are keys, and the
        vertices themselves are deleted: later results and counts are without them. Their keys may be inserted again.

        O(n_vertices + m): all edges are scanned. With keys each worker rebuilds its part of the graph, and needs memory
        for the new part beside the old one. Returns and raises the same as `update`.
        """
        return self._updates.delete_vertices(ids)

    # ---- reads: defined in mgraph/client/reads/queries.py, bound here ------------------------------------------------

    has_edge = queries.has_edge
    has_edges = queries.has_edges
    degrees = queries.degrees
    neighbors = queries.neighbors
    vertices = queries.vertices
    to_csr = queries.to_csr
    fingerprint = queries.fingerprint

    # ---- other libraries: defined in mgraph/convert, bound here ------------------------------------------------------

    from_arrow = either(convert.from_arrow)
    from_csv = either(convert.from_csv)
    from_cudf = either(convert.from_cudf)
    from_dask = either(convert.from_dask)
    from_dlpack = either(convert.from_dlpack)
    from_networkx = either(convert.from_networkx)
    from_pandas = either(convert.from_pandas)
    from_parquet = either(convert.from_parquet)
    from_polars = either(convert.from_polars)
    from_scipy = either(convert.from_scipy)
    read = either(convert.read)

    to_arrow = convert.to_arrow
    to_cugraph = convert.to_cugraph
    to_networkx = convert.to_networkx
    to_pandas = convert.to_pandas
    to_polars = convert.to_polars
    to_pyg = convert.to_pyg
    to_scipy = convert.to_scipy

    ego = convert.ego
    subgraph = convert.subgraph

    # ---- algorithms: defined in mgraph/algorithms, bound here --------------------------------------------------------

    betweenness_centrality = algorithms.betweenness.betweenness_centrality
    bfs = algorithms.bfs.bfs
    clustering = algorithms.clustering.clustering
    connected_components = algorithms.components.connected_components
    core_number = algorithms.core_number.core_number
    degree_centrality = algorithms.degree_centrality.degree_centrality
    distances = algorithms.distances.distances
    eigenvector_centrality = algorithms.eigenvector_centrality.eigenvector_centrality
    gather = algorithms.gather.gather
    hits = algorithms.hits.hits
    jaccard = algorithms.jaccard.jaccard
    k_core = algorithms.k_core.k_core
    k_hop = algorithms.k_hop.k_hop
    k_truss = algorithms.k_truss.k_truss
    katz_centrality = algorithms.katz_centrality.katz_centrality
    label_propagation = algorithms.label_propagation.label_propagation
    leiden = algorithms.leiden.leiden
    louvain = algorithms.louvain.louvain
    modularity = algorithms.modularity.modularity
    multi_source_bfs = algorithms.multi_source_bfs.multi_source_bfs
    overlap = algorithms.overlap.overlap
    pagerank = algorithms.pagerank.pagerank
    random_walks = algorithms.random_walks.random_walks
    sample_neighbors = algorithms.sample_neighbors.sample_neighbors
    shortest_path = algorithms.shortest_path.shortest_path
    sssp = algorithms.sssp.sssp
    strongly_connected_components = algorithms.strong_components.strongly_connected_components
    transitivity = algorithms.triangles.transitivity
    triangles = algorithms.triangles.triangles
    maintain = maintained.maintain
    run = queries.run

    # ---- distribution over the workers -------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """Return the vertices, edges, bytes and last batch's time per worker. Makes no call."""
        return self._updates.balance()

    memory = queries.memory

    def rebalance(self) -> Balance:
        """Move range boundaries so that workers hold about equally many edges.

        Vertices move with their edges. Ids, edges, epoch and results stay the same; results keep the ranges that they
        were computed with. All workers switch to the new ranges, or none does.

        Returns
        -------
        Balance
            The balance afterwards.

        Raises
        ------
        CapacityError
            A worker has no memory for its new part beside the old one. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.

        Notes
        -----
        O(n + m log m) in total, divided over the workers: each part is rebuilt from its sorted edges. Needs memory for
        the new part beside the old one, and 16 bytes per moving arc.
        """
        return self._updates.rebalance()

    def reorder(self) -> Balance:
        """Renumber the vertices internally by descending degree, dealt to the workers in turn.

        Of vertices of equal degree each worker gets consecutive ones: most edges of a grid stay within a worker. Users'
        ids, edges, epoch and results stay the same; the workers' ranges become equally long. All workers switch to the
        new order, or none does. It pays off after the graph has grown much: the values of hubs then share cache lines
        again.

        Returns
        -------
        Balance
            The balance afterwards.

        Raises
        ------
        CapacityError
            A worker has no memory for its new part beside the old one. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.

        Notes
        -----
        O(n log n + m log m) in total, divided over the workers: each part is rebuilt from its renumbered, sorted edges.
        Meanwhile each worker needs memory for the new part beside the old one, about 24 bytes per arc of its own and 40
        bytes per vertex of the whole graph. Afterwards the order takes 4 bytes per vertex on each worker and 8 bytes
        per vertex in this process.
        """
        return self._updates.reorder()

    # ---- mixed streams: defined in mgraph/client/batches/mixed.py, bound here ----------------------------------------

    execute = mixed.execute
    weights = mixed.weights

    # ---- stores, earlier epochs, copies, other places and sources: defined in mgraph/client, bound here --------------

    open = either(store_methods.open_graph)
    load = either(store_methods.load)
    at = store_methods.at
    copy = copy
    move_to = move_to
    changes = changes
    follow = follow
    stream = stream
    save = store_methods.save
    snapshot = store_methods.snapshot

    # ---- several clients: defined in mgraph/client/published/publishing.py, bound here -------------------------------

    attach = either(publishing.attach)
    publish = publishing.publish
    unpublish = publishing.unpublish

    # ---- closing and display -----------------------------------------------------------------------------------------

    history = history
    metrics = metrics
    plot = plotting.plot
    draw = plotting.draw

    def close(self) -> None:
        """Free the graph and its results, including results still in use.

        Idempotent, also after a worker was lost. Takes a few seconds at most.
        """
        self._directory.coordinator.close()

    def __enter__(self) -> DynamicGraph:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a DynamicGraph cannot be pickled: it belongs to the process that made it; copy() makes a copy, and "
            "to_csr() can be pickled"
        )


# Give the class the signature of `__init__`, for `help` and editors; by default it is that of `__new__`.
_self, *_parameters = inspect.signature(DynamicGraph.__init__).parameters.values()
DynamicGraph.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]


def _numbering(n_vertices: int | None, order: Any, balance: Any, size: int) -> Numbering:
    """Return the numbering of a new graph for `size` ranks."""
    if n_vertices is None and not (balance is None and (order is None or isinstance(order, str))):
        raise InvalidOption("an order or a balance is of known vertices; give n_vertices")
    n_vertices = 0 if n_vertices is None else n_vertices
    return Numbering.make(check_count(n_vertices, "n_vertices"), size, fixed_order(order), balance)


def _place(client: Any, workers: Sequence[str] | None, exchange: str) -> Place:
    """Return the place of the shards: the client's workers, or this process."""
    if client is None:
        return local.Here(workers, exchange)
    try:
        from mgraph.client.creation.placement import OnCluster  # both import Dask
        from mgraph.worker import plugin
    except ImportError as error:
        if isinstance(client, str):
            raise MgraphError(f"{NO_DASK}: {error}") from error
        raise not_a_client(client) from None  # without Dask, `client` cannot be a client
    return OnCluster(client, workers, exchange, plugin.ensure)
