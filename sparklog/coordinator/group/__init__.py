"""The shard of a group coordinator: the groups of one partition of __consumer_offsets."""
