"""The cluster's registry: topics, partitions and configs, replayed from the metadata log."""
