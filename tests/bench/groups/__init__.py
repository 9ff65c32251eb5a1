"""sparklog's coordinators beside Apache Kafka's, with the same clients: `make bench-groups`."""
