"""The page ``/mgraph`` of Dask's dashboard: graphs, epochs, edges a second, and what each rank does."""

from mgraph.dashboard.plugin import MgraphPage, add_page, dask_setup

__all__ = ["MgraphPage", "add_page", "dask_setup"]
