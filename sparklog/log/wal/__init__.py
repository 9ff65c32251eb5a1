"""The objects of a broker's write-ahead log: how they are written, sealed and read again."""
