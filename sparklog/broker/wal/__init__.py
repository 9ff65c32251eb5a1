"""The broker's write-ahead log: batches of all its partitions, gathered and appended in order."""
