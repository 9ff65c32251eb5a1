"""One partition on one broker: as leader, as follower, or while it recovers."""
