"""Take records of topics to the console, to Parquet or to a Delta table, once or as a stream.

spark-submit jobs/consume.py --root s3://bucket/log --topic flights --from-time 2013-07-01T00:00:00Z
spark-submit jobs/consume.py --help
"""

import sys

from sparklog.spark.jobs.consume import consume, parse_consume
from sparklog.spark.jobs.job import run_job
from sparklog.spark.schedule.metrics_file import write_metrics_file


def main() -> int:
    """Run the job and return its exit code."""
    return run_job("sparklog consume", parse_consume, consume, write_metrics=write_metrics_file)


if __name__ == "__main__":
    sys.exit(main())
