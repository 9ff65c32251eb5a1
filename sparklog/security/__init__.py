"""Authentication and authorization as pure code: SASL, principals. It imports `core` only."""
