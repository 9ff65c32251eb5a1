"""Lasting queries: projects of Spark Declarative Pipelines with topics as sources and sinks."""
