"""The cluster's registry: topics, partitions and configs, folded from the metadata log."""
