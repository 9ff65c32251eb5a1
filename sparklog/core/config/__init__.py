"""Settings of topics, brokers, groups and transactions under their Kafka names."""
