"""Locks in forked children, where the thread that holds a lock may not exist."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["renew_in_children"]

_OWNERS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  #: the name of each owner's lock


def renew_in_children(owner: Any, name: str = "_lock") -> None:
    """Replace the attribute `name` of `owner`, an RLock, by a new one in each child that is forked."""
    _OWNERS[owner] = name


def _renew() -> None:
    for owner, name in list(_OWNERS.items()):
        setattr(owner, name, threading.RLock())


os.register_at_fork(after_in_child=_renew)
