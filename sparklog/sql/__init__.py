"""SQL over topics, on DuckDB in this process: no server and no JVM."""
