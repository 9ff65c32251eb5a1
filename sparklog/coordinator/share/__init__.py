"""Share groups: queues over the partitions of a log, without an owner for each partition."""
