"""The controller's shell: heartbeats, registration, the metadata log, producer ids."""
