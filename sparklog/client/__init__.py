"""Thin layer over an existing Kafka client, plus the few calls that it lacks."""
