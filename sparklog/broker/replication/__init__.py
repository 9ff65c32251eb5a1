"""Replication: the follower's fetcher, flushes, recovery, hand-over, AlterPartition."""
