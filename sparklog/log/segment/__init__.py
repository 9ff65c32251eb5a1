"""One segment: an Arrow IPC file with an index, checksums and key bounds in its footer."""
