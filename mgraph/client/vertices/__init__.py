"""Which vertices a graph has: the translation of ids and keys, and the ranges that the workers own."""
