"""Log access: Spark code opens a log, finds leaders, and reports lost data."""
