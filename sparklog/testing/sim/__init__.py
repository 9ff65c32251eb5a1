"""Whole clusters in a deterministic simulation: network, store, faults, clients."""
