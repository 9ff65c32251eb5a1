"""Measures of `make bench-groups`, one module each."""
