"""The environment of a broker: clock, tasks, store access, identity, metrics, metadata."""
