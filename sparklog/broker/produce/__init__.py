"""The way of a Produce request: checks, appends, and the wait for replicas and storage."""
