"""Starting a cluster for mgraph; the library itself takes any `dask.distributed.Client`."""

from cluster.start import ClusterClient, start

__all__ = ["ClusterClient", "start"]
