"""The data source's reads: options, offsets, splits, scans, the live tail."""
