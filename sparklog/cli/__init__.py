"""The command line: Kafka's tools as `sparklog` commands, on a log's root or through brokers."""
