"""Keep a Delta table of a topic, every record once; now and then, or following the topic.

spark-submit jobs/materialize.py --root s3://bucket/log --topic flights --table tables/flights
spark-submit jobs/materialize.py --help
"""

import sys

from sparklog.spark.job import run_job
from sparklog.spark.materialize import materialize
from sparklog.spark.materialize_arguments import parse_materialize


def main() -> int:
    """Run the job and return its exit code."""
    return run_job("sparklog materialize", parse_materialize, materialize)


if __name__ == "__main__":
    sys.exit(main())
