"""Creation of graphs: on a cluster or in this process, from a store, and moves from place to place."""
