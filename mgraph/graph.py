"""`DynamicGraph`: a changing graph, partitioned over the workers of a Dask cluster, as its user sees it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from distributed import Client

from mgraph.algorithms import PROGRAMS, warm
from mgraph.algorithms.contract import check_vertex
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.partition import Partition
from mgraph.runtime import display, placement, plugin, reads
from mgraph.runtime.bridge import Bridge
from mgraph.runtime.changes import Changes
from mgraph.runtime.checks import check_count, check_number, check_whole
from mgraph.runtime.coordinator import Coordinator
from mgraph.runtime.door import Door
from mgraph.runtime.protocol import Moved
from mgraph.runtime.report import UpdateReport
from mgraph.runtime.result import SearchValues, VertexValues, starts_of
from mgraph.structures import Csr, parse

__all__ = ["DynamicGraph", "UpdateReport"]

T = TypeVar("T")


class DynamicGraph(Changes):
    """A simple graph, unique edges with optional float32 weights, that changes by batches and is analysed as it stands.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client of any Dask cluster; this process must reach the workers.
    n_vertices : int
        Vertices 0 .. n_vertices - 1; `add_vertices` adds more.
    structure : str
        The local structure on each worker: one of `mgraph.structures.names()`, with options as in "slabgraph:slab=32".
    weighted : bool
        Whether edges have a weight; inserts without one get 1.
    directed : bool
        Else each edge goes both ways and counts once.
    reverse : bool
        Keep the in-edges of a directed graph too, for pull, bottom-up BFS and ``bfs(direction="in")``; doubles memory.
    order : "degree" or array of ints, shape (n_vertices,), optional
        The internal ids, which are split into the workers' ranges and which no call shows. A permutation: the internal
        id of each vertex. "degree": by descending degree, dealt to the workers in turn. A `reorder` then follows the
        first `insert`, `update` or `ingest` that leaves edges. What PageRank and BFS keep for hubs shares cache lines,
        and the workers have about equally many edges.
    balance : None, "vertices" or array of ints, shape (n_vertices,)
        Ranges of equally many vertices, or of about equal work by these degrees.
    workers : list of str, optional
        Addresses of the workers that hold the graph; all of the cluster where it is left out.
    exchange : "auto" | "loopback" | "tcp" | "ucx" | "nccl"
        How the workers speak to each other.
    device : "auto" | "cpu" | "cuda"
        "auto" takes GPUs where every worker has one.
    reserve : int
        Bytes of GPU memory that each worker takes at once, so that no batch waits for the driver's allocations (75 ms
        for an array that grows to 2 GB, on an H200); they are the graph's until `close`. Nothing on the CPU.

    Raises
    ------
    TypeError
        The client is asynchronous, or no client.
    InvalidOption
        An unknown name, no workers, or an `order` that is no permutation.
    CapacityError
        More vertices than 32-bit ids allow, or than memory.
    DeviceError
        GPUs where a worker has none, or no compiler.
    WorkerLost
        A worker cannot be reached.

    Notes
    -----
    Use it as a context manager, or `close` it: the workers hold its memory until then, or until this process ends.
    Calls may come from several threads; each waits for its turn. A worker that dies takes the graph with it: calls
    raise `WorkerLost` or `GraphLost` from then on, and `close` still works. Adaptive scaling and the retirement of
    workers count as that.

    Examples
    --------
    >>> with Client() as client, DynamicGraph(client, n_vertices=4) as g:  # doctest: +SKIP
    ...     g.insert([0, 1, 2], [1, 2, 3]).inserted
    ...     g.bfs(0).to_numpy()
    3
    array([0, 1, 2, 3], dtype=int32)
    """

    def __init__(
        self,
        client: Client,
        n_vertices: int,
        *,
        structure: str = "gpma+",
        weighted: bool = False,
        directed: bool = True,
        reverse: bool = False,
        order: Any = None,
        balance: Any = None,
        workers: Sequence[str] | None = None,
        exchange: str = "auto",
        device: str = "auto",
        reserve: int = 0,
    ) -> None:
        placement.check_client(client)
        n_vertices = check_count(n_vertices, "n_vertices")
        parse(structure)
        addresses = placement.choose_workers(client, workers)
        placement.check_names(device, exchange, len(addresses))
        self._door = Door.make(n_vertices, len(addresses), placement.fixed_order(order), balance)
        self._order_due = isinstance(order, str)
        self.structure, self.weighted, self.directed = structure, bool(weighted), bool(directed)
        self.reverse = bool(reverse) or not self.directed
        self._client, self._moving = client, threading.RLock()
        plugin.ensure(client, PROGRAMS, warm)
        bridge = Bridge(client.loop.asyncio_loop)
        self._coordinator = Coordinator(uuid.uuid4().hex[:12], bridge, addresses, client.connection_args)
        self._coordinator.open()
        try:
            self._create(device, exchange, addresses, check_whole(reserve, "reserve"))
        except BaseException:
            self._coordinator.close()
            raise

    def _create(self, device: str, exchange: str, addresses: Sequence[str], reserve: int) -> None:
        found = self._coordinator.call("inspect")
        self.device = placement.choose_device(device, addresses, found)
        self.exchange = placement.choose_exchange(exchange, self.device, addresses, found)
        self._coordinator.call(
            "create",
            {
                "device": self.device,
                "exchange": self.exchange,
                "starts": self._door.partition.starts,
                "order": self._door.order,
                "structure": self.structure,
                "directed": self.directed,
                "weighted": self.weighted,
                "reverse": self.reverse and self.directed,
                "reserve": reserve,
            },
        )

    # ---- what it is --------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The graph's id, which errors name."""
        return self._coordinator.graph

    @property
    def num_edges(self) -> int:
        """How many edges there are; an undirected edge counts once. O(1), asks no worker."""
        return sum(state["edges"] for state in self._coordinator.states)

    @property
    def epoch(self) -> int:
        """How many batches were committed."""
        return self._coordinator.epoch

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that all workers hold for this graph, as of its last call."""
        return sum(state["nbytes"] for state in self._coordinator.states)

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _read(self, read: Callable[[Door], T]) -> T:
        """A read by the ranges of now: one that a move of them overtook is made again.

        The move was another thread's, or one that Ctrl-C kept from being followed here.
        """
        while True:
            door = self._door
            try:
                return read(door)
            except Moved:
                with self._moving:  # until the move is known here
                    if self._door is door:
                        self._coordinator.call("inspect")  # where the ranks say what they have
                        self._follow()
                    if self._door is door:
                        raise

    def has_edges(self, src: Any, dst: Any) -> np.ndarray:
        """Whether each edge is there: bool[n]. Ids as in `EdgeBatch`; `UnknownVertex` past `num_vertices`."""
        src, dst = self._ids(src, "src"), self._ids(dst, "dst")
        if src.shape != dst.shape:
            raise InvalidBatch(f"src has shape {src.shape} and dst {dst.shape}; an edge is one of each")
        return self._read(lambda door: reads.has_edges(self._coordinator, door, src, dst))

    def degrees(self, ids: Any = None, direction: str = "out") -> np.ndarray:
        """Out-degrees, or in-degrees, uint32[n], of `ids` or of all vertices; a self-loop counts once.

        Direction "in" needs ``reverse=True`` or an undirected graph.
        """
        self._check_direction(direction)
        ids = np.arange(self.num_vertices, dtype=np.uint32) if ids is None else self._ids(ids, "ids")
        return self._read(lambda door: reads.degrees(self._coordinator, door, ids, direction))

    def neighbors(self, ids: Any, direction: str = "out") -> Csr:
        """The rows of `ids`, in their order: whom their edges lead to, or with direction "in" from whom edges come.

        Row i of the answer is ``dst[offsets[i] : offsets[i + 1]]``, in the order in which the structure holds it;
        offsets is int64[n + 1], dst uint32[m], and weight float32[m], or None in an unweighted graph. Direction "in"
        needs ``reverse=True`` or an undirected graph.
        """
        self._check_direction(direction)
        ids = self._ids(ids, "ids")
        return self._read(lambda door: reads.neighbors(self._coordinator, door, ids, direction))

    def _check_direction(self, direction: str) -> None:
        if direction not in ("out", "in"):
            raise InvalidOption(f'direction {direction!r} is neither "out" nor "in"')
        if direction == "in" and not self.reverse:
            raise InvalidOption('direction "in" needs the in-edges; create the graph with reverse=True')

    def fingerprint(self) -> int:
        """A 64-bit hash of the set of edges by users' ids, weights aside; computed on the workers, O(n + m).

        Graphs with the same edges have the same one, however they came there and wherever they lie: the sum of
        SplitMix64's finaliser of ``src << 32 | dst``, over an undirected edge both ways, modulo 2**64.
        """
        return sum(answer["hash"] for answer in self._coordinator.call("fingerprint")) % 2**64

    def to_csr(self) -> Csr:
        """All rows, gathered to this process: `neighbors` of every vertex. O(n + m); needs the memory for it here."""
        self._check()
        return self._read(lambda door: reads.all_rows(self._coordinator, door))

    def to_scipy(self) -> Any:
        """`to_csr` as a ``scipy.sparse.csr_array``, with weights or ones; needs SciPy."""
        from scipy.sparse import csr_array

        csr = self.to_csr()
        data = np.ones(len(csr.dst), np.float32) if csr.weight is None else csr.weight
        return csr_array((data, csr.dst.astype(np.int64), csr.offsets), shape=(self.num_vertices,) * 2)

    # ---- algorithms --------------------------------------------------------------------------------------------------

    def bfs(self, source: int, direction: str = "out", predecessors: bool = False) -> VertexValues:
        """Distances from `source` in edges: int32, -1 where unreachable; they stay on the workers.

        Parameters
        ----------
        source : int
        direction : "out" | "in"
            Along the edges, or against them: from which vertices `source` is reached. "in" needs ``reverse=True`` or an
            undirected graph.
        predecessors : bool
            Whether to find each vertex's predecessor on a shortest path too: the result has them as ``.predecessors``,
            int64 by user's id, -1 for `source` and where unreachable. Always the same one of several. Takes 8 bytes a
            vertex of the whole graph on each worker meanwhile, and 8 an owned vertex as long as the result. The first
            such search on a machine also takes the seconds that compiling does.

        Examples
        --------
        >>> found = g.bfs(0, predecessors=True)  # doctest: +SKIP
        >>> found.to_numpy(), found.predecessors.to_numpy()  # doctest: +SKIP
        (array([ 0,  1,  2, -1], dtype=int32), array([-1,  0,  1, -1]))
        """
        self._check_direction(direction)
        self._check()
        vertex = np.array([check_vertex(source, self.num_vertices, "source")], np.uint32)
        args = {"direction": direction, "predecessors": bool(predecessors)}

        def search(door: Door) -> VertexValues:
            inside = {"source": int(door.inside(vertex)[0])}
            return self._run_by(door, "bfs", {**args, **inside}, SearchValues if predecessors else VertexValues)

        return self._read(search)

    def pagerank(self, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100, start: Any = None) -> VertexValues:
        """PageRank: float32 values that sum to 1; they stay on the workers. Weights do not count.

        Parameters
        ----------
        alpha : float
            The probability of following an edge, above 0 and below 1.
        tol : float
            Ends when the values change by less than this in all (L1): not NetworkX's rule, which multiplies it by the
            number of vertices. Float32 may swing by 5e-7; ``.converged`` says whether the end was reached.
        max_iter : int
            Ends after as many iterations at the latest; ``.iterations`` says how many it took.
        start : result of an earlier ``pagerank``, or array of at most `num_vertices` numbers, optional
            Ranks to begin with, scaled to sum to 1: those of an older epoch save iterations. A result of this graph
            stays on the workers; an array goes through this process, and so does a result from before a `reorder`.
            Vertices added since begin with the mean.

        Raises
        ------
        InvalidOption
            An argument out of its range; a `start` that is negative, not finite, too long or all 0.
        GraphClosed
            `start` is a result that was closed.
        """
        if not 0 < check_number(alpha, "alpha") < 1:
            raise InvalidOption(f"alpha is {alpha}; it lies above 0 and below 1")
        if not check_number(tol, "tol") > 0:
            raise InvalidOption(f"tol is {tol}; it is above 0")
        if check_count(max_iter, "max_iter") < 1:
            raise InvalidOption(f"max_iter is {max_iter}; at least 1 iteration is needed")
        args = {"alpha": float(alpha), "tol": float(tol), "max_iter": int(max_iter)}
        if start is None:
            return self._run("pagerank", args)
        go_on = partial(starts_of, start, self._coordinator)
        return self._read(lambda door: self._run_by(door, "pagerank", args, start=go_on(door)))

    def run(self, algorithm: str, /, **arguments: Any) -> VertexValues:
        """Run an algorithm by its name: ``run("bfs", source=0)`` is ``bfs(0)``."""
        if algorithm not in PROGRAMS:
            raise InvalidOption(f"algorithm {algorithm!r} is none of {', '.join(map(repr, sorted(PROGRAMS)))}")
        return getattr(self, algorithm)(**arguments)

    def _run(self, name: str, args: dict[str, Any]) -> VertexValues:
        return self._read(lambda door: self._run_by(door, name, args))

    def _run_by(
        self,
        door: Door,
        name: str,
        args: dict[str, Any],
        values: type[VertexValues] = VertexValues,
        start: list[dict[str, Any]] | None = None,
    ) -> VertexValues:
        """Run a program whose arguments, and what each rank is to `start` from, are by the internal ids of `door`."""
        self._check()
        result = uuid.uuid4().hex
        shares = None if start is None else [{"start": share} for share in start]
        try:
            common = {"name": name, "result": result, "generation": door.generation, "args": args}
            answers = self._coordinator.call("run", common, shares, connect=True)
        except BaseException:
            self._coordinator.forget(result)  # some ranks may have finished
            raise
        first, ranges = answers[0], Partition((*(answer["lo"] for answer in answers), answers[-1]["hi"]))
        door = door.moved(ranges)  # as they were when it ran: another thread may have moved them, or added vertices
        return values(self._coordinator, door, name, result, first["epoch"], first["dtype"], first["info"])

    # ---- the end, and how it looks -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the graph on the workers, and its results; also twice, also after a loss. Takes seconds at most."""
        self._coordinator.close()

    def __enter__(self) -> DynamicGraph:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DynamicGraph is bound to the sessions of one process and does not pickle")

    def _title(self) -> str:
        kind = f"{'' if self.directed else 'un'}directed{', weighted' if self.weighted else ''}"
        state = ", closed" if self._coordinator.closed else ""
        return (
            f"DynamicGraph {self.id}: epoch {self.epoch}, {self.num_vertices:,} vertices, {self.num_edges:,} edges, "
            f"{kind}, {self.structure} on {self.device}, exchange {self.exchange}{state}"
        )

    def __repr__(self) -> str:
        return display.as_text(self._title(), self.workers, self._coordinator.states)

    def _repr_html_(self) -> str:
        return display.as_html(self._title(), self.workers, self._coordinator.states)
