"""Console producer and consumer: readers, formats, sources and sinks of records."""
