"""Brokers: asyncio shells that lead and follow partitions and speak Kafka's protocol."""
