"""Shipped fakes and faults: what tests and simulations put in place of the real world."""
