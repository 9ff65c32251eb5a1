"""Spark imports this module by itself, so that `format("sparklog")` works without registration.

Spark looks for top-level modules named `pyspark_*` and takes their `DefaultSource`. An import
error here would break the lookup of every data source, so this file holds one import.
"""

from sparklog.spark.datasource import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
