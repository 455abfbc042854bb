"""Start a cluster for mgraph.

The library itself takes any `dask.distributed.Client`.
"""

from cluster.choice import Choice, Machine, choose
from cluster.scheduler_file import ClusterNotReady, connect
from cluster.start import ClusterClient, start

__all__ = ["Choice", "ClusterClient", "ClusterNotReady", "Machine", "choose", "connect", "start"]
