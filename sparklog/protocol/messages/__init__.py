"""Requests and responses: frames, schemas, decoder, encoder, and a fast path for Produce."""
