"""Head of a rank's log: written when the term begins, at snapshots, on close, and otherwise once per second.

A thread writes it, so no change waits for it. Only the first head is followed by a sync of the folder. Ranks share that
folder, and a failed sync on one rank may drop the names that another has just written. So a crash may bring back an
older head.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from mgraph.errors import StoreError
from mgraph.log.log import Log
from mgraph.log.manifest import Head
from mgraph.log.store import Store

__all__ = ["HeadWriter"]

logger = logging.getLogger(__name__)

SECONDS = 1.0  #: time between two heads, unless `hurry` is called


class HeadWriter:
    """Writes the head of a rank's log.

    Parameters
    ----------
    store : Store
    head : Head
        The term and the rank.
    log : Log
    name : str
        The name of its thread.
    """

    def __init__(self, store: Store, head: Head, log: Log, name: str = "mgraph-log-head") -> None:
        self._store, self._head, self._log = store, head, log
        self._written: Head | None = None
        self._failing = False
        self._wake, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def write(self) -> None:
        """Write the head if something is new, the first one durably; `StoreError` if that fails.

        Called before `start`, and then by the thread.
        """
        head = replace(self._head, synced=self._log.synced, epoch=self._log.common)
        if head != self._written:
            self._store.write_head(head, durable=self._written is None)
            self._written = head

    def start(self) -> None:
        """Write the head once per second from now on."""
        self._thread.start()

    def hurry(self) -> None:
        """Have the thread write the head now."""
        self._wake.set()

    def close(self) -> None:
        """End the thread, and write the head of the closed log."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._try()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(SECONDS)
            self._wake.clear()
            if not self._closing:
                self._try()

    def _try(self) -> None:
        """Write the head, or log why not. Without it, later openings check less."""
        try:
            self.write()
            self._failing = False
        except StoreError as error:
            if not self._failing:  # once per full disk, not once per second
                logger.warning("the head of a log is behind it: %s", error)
            self._failing = True
