"""Look every partition of a log over, and say what is damaged and what is lost.

spark-submit jobs/verify.py --root s3://bucket/log --quick
spark-submit jobs/verify.py --help
"""

import sys

from sparklog.spark.jobs.job import run_job
from sparklog.spark.jobs.usage import reported
from sparklog.spark.jobs.verify import parse_verify, verify
from sparklog.spark.schedule.metrics_file import write_metrics_file

PROGRAM = "sparklog verify"


def main() -> int:
    """Run the job and return its exit code."""
    return run_job(
        PROGRAM, parse_verify, reported(PROGRAM, verify), write_metrics=write_metrics_file
    )


if __name__ == "__main__":
    sys.exit(main())
