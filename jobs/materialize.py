"""Keep a Delta table of a topic, every record once; now and then, or following the topic.

spark-submit jobs/materialize.py --root s3://bucket/log --topic flights --table tables/flights
spark-submit jobs/materialize.py --help
"""

import sys
from functools import partial

from sparklog.spark.jobs.job import run_job
from sparklog.spark.materialize.arguments import parse_materialize
from sparklog.spark.materialize.job import materialize
from sparklog.spark.schedule.metrics_file import write_metrics_file

PROGRAM = "sparklog materialize"


def main() -> int:
    """Run the job and return its exit code."""
    body = partial(materialize, program=PROGRAM)
    return run_job(PROGRAM, parse_materialize, body, write_metrics=write_metrics_file)


if __name__ == "__main__":
    sys.exit(main())
