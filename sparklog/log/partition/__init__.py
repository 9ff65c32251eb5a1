"""One partition's log: append, lead, read, and look up by offset, timestamp or key."""
