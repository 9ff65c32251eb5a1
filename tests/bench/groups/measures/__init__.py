"""What `make bench-groups` measures, one module each."""
