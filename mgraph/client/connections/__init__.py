"""The connections to the workers: a session with each worker, how it is opened, and memory that both processes map."""
