"""Classic consumer groups: members, JoinGroup, SyncGroup, rebalances."""
