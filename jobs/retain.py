"""Delete old records as topics' settings say, and delete objects that are no longer needed.

spark-submit jobs/retain.py --root s3://bucket/log --dry-run
spark-submit jobs/retain.py --help
"""

import sys

from sparklog.spark.jobs.job import run_job
from sparklog.spark.jobs.retain import parse_retain, retain
from sparklog.spark.jobs.usage import reported
from sparklog.spark.schedule.metrics_file import write_metrics_file

PROGRAM = "sparklog retain"


def main() -> int:
    """Run the job and return its exit code."""
    return run_job(
        PROGRAM, parse_retain, reported(PROGRAM, retain), write_metrics=write_metrics_file
    )


if __name__ == "__main__":
    sys.exit(main())
