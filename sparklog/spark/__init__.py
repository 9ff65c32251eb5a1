"""Package; see the modules."""
