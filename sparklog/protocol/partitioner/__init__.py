"""Kafka's partitioner: murmur2 over keys, row by row or over a whole column."""
