"""Whole clusters in a simulated world: the parts of that world, the checker, seeds, mutants."""
