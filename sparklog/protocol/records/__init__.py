"""Record batches (magic 2): headers, records to Arrow columns and back, control records."""
