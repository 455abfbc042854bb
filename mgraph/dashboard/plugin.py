"""Scheduler plugin with the page, and two ways to register it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import IOLoop, PeriodicCallback

from mgraph.dashboard.samples import Samples
from mgraph.errors import MgraphError

if TYPE_CHECKING:
    from distributed import Client, Scheduler

__all__ = ["MgraphPage", "add_page", "dask_setup"]

SAMPLE_MS = 1000


class MgraphPage(SchedulerPlugin):
    """Plugin that samples the workers' metrics and serves ``/mgraph``.

    It samples every second. Metrics come with the workers' heartbeats; no worker is called. Registering the plugin
    again changes nothing.
    """

    name = "mgraph-page"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Add the page and begin to sample.

        Raises
        ------
        ImportError
            Bokeh is not installed on the scheduler.
        MgraphError
            The scheduler has no dashboard.
        """
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables

        from mgraph.dashboard.page import fill

        # Serve the page beside the dashboard's own pages.
        samples, variables = Samples(), template_variables(scheduler)
        variables["pages"] = [*variables["pages"], "mgraph"]
        pages = {"/mgraph": partial(_handed, fill, samples)}
        application = BokehApplication(pages, scheduler, prefix=_prefix(scheduler), template_variables=variables)
        scheduler.http_application.add_application(application)
        application.initialize(IOLoop.current())
        application.start()
        # Sample every second.
        self._taking = PeriodicCallback(partial(_take, samples, scheduler), SAMPLE_MS)
        self._taking.start()

    async def close(self) -> None:
        """Stop sampling. The page itself ends with the scheduler's server."""
        self._taking.stop()


def _prefix(scheduler: Scheduler) -> str:
    """Return the URL prefix of the dashboard's own pages."""
    prefixes = [app.prefix for app in scheduler.http_application.applications if hasattr(app, "app_paths")]
    if not prefixes:
        raise MgraphError("the scheduler has no dashboard; start it with one, and with Bokeh installed")
    return str(prefixes[0])


def _handed(fill: Any, samples: Samples, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Adapt `fill` to the arguments that Bokeh passes."""
    fill(samples, extra, doc)


def _take(samples: Samples, scheduler: Any) -> None:
    samples.take(time.time(), {address: state.metrics for address, state in scheduler.workers.items()})


def add_page(client: Client) -> Any:
    """Add the page ``/mgraph`` to the dashboard, and return its address.

    The scheduler needs mgraph and Bokeh (the extra ``dashboard``). Adding the page again changes nothing. A scheduler
    started with ``dask scheduler --preload mgraph.dashboard`` has the page from the start.

    Parameters
    ----------
    client : distributed.Client
        With an asynchronous client, await this function.

    Returns
    -------
    str
        The page's address.

    Raises
    ------
    MgraphError
        The scheduler lacks mgraph or Bokeh, or has no dashboard.

    Examples
    --------
    >>> from mgraph.dashboard import add_page
    >>> add_page(client)  # doctest: +SKIP
    'http://127.0.0.1:8787/mgraph'
    """
    return client.sync(_add_page, client)


async def _add_page(client: Client) -> str:
    """Add the page, on the client's event loop."""
    try:
        await client.register_plugin(MgraphPage())
    except Exception as error:  # the scheduler passes on errors of all kinds
        raise MgraphError(
            f'the page cannot be added: {error}; install "dask-mgraph[cluster,dashboard]" on the scheduler'
        ) from error
    return str(client.dashboard_link).rsplit("/", 1)[0] + "/mgraph"


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the page to a scheduler started with ``--preload mgraph.dashboard``."""
    scheduler.add_plugin(MgraphPage())
