"""Records before the flush: the tail in memory, batch checks, producer state."""
