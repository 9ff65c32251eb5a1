"""Verification and repair of a partition: findings, and the changes that mend them."""
