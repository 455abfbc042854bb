"""Page ``/mgraph`` of Dask's dashboard."""

from mgraph.dashboard.plugin import MgraphPage, add_page, dask_setup

__all__ = ["MgraphPage", "add_page", "dask_setup"]
