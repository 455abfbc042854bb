"""The NetworkX backend `mgraph`: live graphs with NetworkX's methods, and NetworkX's functions on them.

NetworkX finds it by the entry points of the package: `mgraph.networkx.info` when it is imported, and
`mgraph.networkx.backend` at the first call that uses it.
"""
