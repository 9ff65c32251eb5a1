"""Brokers: asyncio shells that lead and follow partitions and speak Kafka's protocol.

kio offers its types to hypothesis where that is installed. In a worker of Spark that takes more
than a second of a processor, and no broker needs it.
"""

from sparklog.core.hidden_imports import hidden

with hidden("hypothesis"):
    import kio.static.primitive  # noqa: F401 - see above
