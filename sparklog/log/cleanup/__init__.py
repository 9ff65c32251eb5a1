"""Upkeep of a partition: retention, compaction, merging, deletion of unnamed objects."""
