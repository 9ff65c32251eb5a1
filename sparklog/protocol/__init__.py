"""Kafka's wire format, sans-IO: bytes to values and back.

Nothing here opens a socket or a file, reads a clock, or knows a topic. Import the module you need:
this package imports none of them, so numba and Arrow load only when used.
"""
