"""Connections to the workers: one session per worker, its opening, and memory that both processes map."""
