"""sparklog's log beside Kafka's Spark connector and plain Parquet: `make bench-log`."""
