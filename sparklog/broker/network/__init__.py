"""Sockets: the server, connections, quotas, clients of other brokers, the metrics page."""
