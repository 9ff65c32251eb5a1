"""sparklog's brokers beside Apache Kafka's, with Kafka's own clients: `make bench-broker`."""
