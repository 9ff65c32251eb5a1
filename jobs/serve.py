"""Run brokers as tasks of a Spark application, for Kafka's clients and for Spark's own queries.

spark-submit jobs/serve.py --root s3://bucket/log --brokers 3
spark-submit jobs/serve.py --help
"""

import sys

from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.serve import serve_with
from sparklog.spark.serve.task_broker import run


def main() -> int:
    """Run the job and return its exit code."""
    return run_job("sparklog serve", parse_serve, serve_with(run), ends_with_jvm=False)


if __name__ == "__main__":
    sys.exit(main())
