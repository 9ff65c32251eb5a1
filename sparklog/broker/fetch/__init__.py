"""The way of a Fetch request: sessions, reads, and the wait for new records."""
