"""Read users' tables and files, by the same rules in every call, on the client and on the workers.

`kinds` recognises tables (pandas, Polars, cuDF, Arrow's PyCapsule interface, mappings of arrays) and selects
columns of them; `names` says which column is which; `arrays` makes one column an array of NumPy, CuPy or Arrow where it
is, without missing values; `texts` is a column of strings. `ids`, `weights` and `times` check the values of a column
and give it the dtype that a batch keeps; messages name the row. `files` reads files, whole and in pieces: `opening`
decompresses them and makes every error a `ReadError`, `formats` finds out what a file is, `columnar` and `text` read
tables, and each format of graphs has a module. `mgraph.batch` makes an `EdgeBatch` of their results.
"""
