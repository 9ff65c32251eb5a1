"""Keep the newest record of each key in compacted topics, and merge small objects in all topics.

spark-submit jobs/compact.py --root s3://bucket/log --dry-run
spark-submit jobs/compact.py --help
"""

import sys

from sparklog.spark.jobs.compact import compact, parse_compact
from sparklog.spark.jobs.job import run_job
from sparklog.spark.jobs.usage import reported
from sparklog.spark.schedule.metrics_file import write_metrics_file

PROGRAM = "sparklog compact"


def main() -> int:
    """Run the job and return its exit code."""
    return run_job(
        PROGRAM, parse_compact, reported(PROGRAM, compact), write_metrics=write_metrics_file
    )


if __name__ == "__main__":
    sys.exit(main())
