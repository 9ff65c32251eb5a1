"""Kafka's wire format, sans-IO: bytes to values and back.

Nothing here opens a socket or a file, reads a clock, or knows a topic. Import the module you need;
this package imports none of them, so that neither numba nor Arrow loads before it is used.
"""
