"""Users' own ids: a table from keys, int64 numbers or strings, to the numbers of vertices, and the way back."""

from mgraph.keys.key_array import KeyArray, columns_in
from mgraph.keys.table import NONE, KeyTable

__all__ = ["NONE", "KeyArray", "KeyTable", "columns_in"]
