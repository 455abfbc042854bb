"""Users' own ids: a table from keys, int64 numbers or strings, to the numbers of vertices, and the way back."""

from mgraph.keys.key_array import Names, columns_in
from mgraph.keys.table import NONE, KeyTable

__all__ = ["NONE", "KeyTable", "Names", "columns_in"]
