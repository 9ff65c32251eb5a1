"""Avro, JSON Schema and Protobuf: parsing, canonical texts and compatibility."""
