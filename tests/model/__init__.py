"""Exhaustive checks of small cases: every interleaving, every fault in a budget."""
