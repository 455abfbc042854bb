"""Users' own ids: a table from keys to vertex numbers, and back."""

from mgraph.keys.key_array import KeyArray, columns_in
from mgraph.keys.table import NONE, KeyTable

__all__ = ["NONE", "KeyArray", "KeyTable", "columns_in"]
