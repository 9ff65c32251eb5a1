"""Shared helpers of the tests: clusters, processes, servers, records, damage."""
