"""The object store primitive: a few operations, one of them put-if-absent."""
