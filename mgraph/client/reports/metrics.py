"""The metrics of a graph in the user's process."""

from __future__ import annotations

from typing import Any

from mgraph.metrics import of_graph

__all__ = ["metrics"]


def metrics(self: Any) -> dict[str, float]:
    """Return counters and latest values of the graph, by name, as of its last call. Makes no call.

    On a cluster each worker serves the same numbers per rank to Prometheus: see the page "Watching a graph".

    Returns
    -------
    dict of str to number
        `vertices`, `edges`, `epoch`; `durable_epoch`, 0 without a store; `operations`, the distinct edges in all
        batches; `batches`, their number; `batch_seconds`, the sum of their times on the slowest worker, and
        `last_batch_seconds`, without waits for other workers; `memory_bytes`; `recoveries`; `queued`, the batches that
        this process has in flight. `operations`, `batches` and `batch_seconds` count from the time when the graph was
        made, opened or recovered.
    """
    caller = self._directory.coordinator
    return {**of_graph(caller.states), "queued": caller.queued}
