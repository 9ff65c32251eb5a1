"""The coordinators' shells: shards on the leaders of internal topics, and transaction markers."""
