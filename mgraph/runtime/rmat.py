"""Moved to `mgraph.sources`; this path goes with the next release."""

import warnings

from mgraph.sources.rmat import Rmat

__all__ = ["Rmat"]

warnings.warn(
    "mgraph.runtime.rmat is mgraph.sources now; the old path goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
