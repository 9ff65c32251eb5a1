"""The job that keeps a Delta table of a topic."""
