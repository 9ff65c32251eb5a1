"""Send rows of CSV, JSON lines, Parquet or any other Spark source to a topic.

spark-submit jobs/produce.py --root s3://bucket/log --topic t --input flights.csv --key tailnum
spark-submit jobs/produce.py --help
"""

import sys

from sparklog.spark.jobs.job import run_job
from sparklog.spark.jobs.produce import produce
from sparklog.spark.jobs.produce_arguments import parse_produce
from sparklog.spark.schedule.metrics_file import write_metrics_file


def main() -> int:
    """Run the job and return its exit code."""
    return run_job("sparklog produce", parse_produce, produce, write_metrics=write_metrics_file)


if __name__ == "__main__":
    sys.exit(main())
