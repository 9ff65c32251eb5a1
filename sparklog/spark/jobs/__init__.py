"""The bodies of jobs: sessions, arguments, produce, consume, compact, retain, verify."""
