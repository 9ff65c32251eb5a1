"""Benchmarks: each runs beside its peers, on this machine, and keeps every raw figure."""
