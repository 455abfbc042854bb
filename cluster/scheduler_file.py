"""Connect to a running cluster, such as a batch job's, by its scheduler file, in bounded time."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

from distributed import Client

from mgraph.errors import InvalidOption, MgraphError

__all__ = ["HELP", "ClusterNotReady", "add_arguments", "connect", "run"]

HELP = "wait until a scheduler and its workers are there, and name them"
POLL_SECONDS = 0.1
CALL_SECONDS = 5.0  #: time limit of a scheduler's answer, before the file is read again


class ClusterNotReady(MgraphError, TimeoutError):
    """The scheduler or its workers did not come up in time; the message says which."""


def connect(scheduler_file: str | Path, *, workers: int = 1, timeout: float = 60.0) -> Client:
    """Connect to the scheduler of `scheduler_file`, and wait for `workers` workers.

    Parameters
    ----------
    scheduler_file : str or Path
        The file that ``dask scheduler --scheduler-file`` writes. It may appear, or be written anew, during the wait.
    workers : int
        The number of workers to wait for; more may join.
    timeout : float
        Seconds in all.

    Returns
    -------
    distributed.Client
        To be closed by the caller; the cluster goes on.

    Raises
    ------
    InvalidOption
        No workers, or no time.
    ClusterNotReady
        There is no such file, nobody answers at its address, or workers are missing when the time is over.
    """
    # Check the options, then wait for the scheduler.
    if not isinstance(workers, int) or workers < 1:
        raise InvalidOption(f"workers is {workers!r}; at least 1 is needed")
    if not (math.isfinite(timeout) and timeout > 0):
        raise InvalidOption(f"timeout is {timeout!r}; seconds above 0 are needed")
    end = time.monotonic() + timeout
    client = _reach(Path(scheduler_file), end, timeout)

    # Wait for the workers. A client that cannot be returned is closed.
    try:
        client.wait_for_workers(workers, timeout=max(POLL_SECONDS, end - time.monotonic()))
    except TimeoutError:
        count = len(_workers(client))
        client.close(CALL_SECONDS)
        raise ClusterNotReady(f"{count} of {workers} workers joined {scheduler_file} within {timeout:g} s") from None
    except BaseException:
        client.close(CALL_SECONDS)
        raise
    return client


def _reach(file: Path, end: float, timeout: float) -> Client:
    """Return a client of the scheduler in `file`.

    Reads the file again each time nobody answers: it may be an earlier job's.
    """
    while True:
        address = _address(file)
        left = end - time.monotonic()
        if address is not None:
            try:
                return Client(address, timeout=max(POLL_SECONDS, min(CALL_SECONDS, left)))
            except OSError as error:
                why = f"nobody answers at {address}, which {file} names: {error}"
        else:
            why = f"{file} does not name a scheduler" if file.exists() else f"there is no scheduler file {file}"
        if time.monotonic() >= end:
            raise ClusterNotReady(f"{why} (waited {timeout:g} s)")
        time.sleep(POLL_SECONDS)


def _address(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or not yet written to its end
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--scheduler-file", default=os.environ.get("MGRAPH_SCHEDULER_FILE"), metavar="FILE",
        help="the scheduler's file (default: MGRAPH_SCHEDULER_FILE)")  # fmt: skip
    add("--workers", type=int, default=1, metavar="N", help="how many to wait for (default: %(default)s)")
    add("--timeout", type=float, default=60.0, metavar="S", help="seconds in all (default: %(default)s)")


def _workers(client: Client) -> list[str]:
    """Return the addresses of all workers; none if the scheduler cannot be reached.

    `Client.scheduler_info` may lack them, since the client's own updates overwrite its answer now and then.
    """
    try:
        return sorted(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    except OSError:
        return []


def run(options: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    if not options.scheduler_file:
        raise InvalidOption("no scheduler file is named; give --scheduler-file or set MGRAPH_SCHEDULER_FILE")
    client = connect(options.scheduler_file, workers=options.workers, timeout=options.timeout)
    try:
        for address in _workers(client):
            print(address)
    finally:
        client.close(CALL_SECONDS)
    return 0
