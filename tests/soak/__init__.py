"""Real processes under faults; what takes minutes is left to `make soak`."""
