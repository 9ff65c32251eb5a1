"""Thin helpers over an existing Kafka client, and the few calls it lacks."""
