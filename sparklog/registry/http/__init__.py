"""The REST API of the registry. Needs the extra `registry`."""
