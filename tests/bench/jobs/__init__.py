"""The upkeep jobs beside Kafka's log cleaner and Spark's Kafka connector: `make bench-jobs`."""
