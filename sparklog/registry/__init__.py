"""Schema registry: subjects, versions and compatibility, by Confluent's REST API."""
