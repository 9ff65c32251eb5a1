"""Shipped fakes and fault injection, for tests and simulations."""
