"""What a person types: Kafka's tools as `sparklog` commands, straight on a log's root."""
