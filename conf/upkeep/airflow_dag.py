"""Upkeep of a log by Airflow 3, where no application serves it with --jobs.

Put this file where Airflow looks for DAGs. It needs apache-airflow-providers-apache-spark and a
connection `spark_default` to the cluster, whose machines have sparklog installed.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

COMMON = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    # One run makes up for all that were missed.
    "catchup": False,
    # Two at once do no harm, and waste.
    "max_active_runs": 1,
    "default_args": {"retries": 1, "retry_delay": timedelta(minutes=10)},
    "tags": ["sparklog"],
}

with DAG("sparklog_retain", schedule="15 * * * *", **COMMON):
    SparkSubmitOperator(
        task_id="retain",
        application="/opt/sparklog/jobs/retain.py",
        application_args=["--root", "s3://bucket/log", "--json"],
    )

with DAG("sparklog_compact", schedule="30 2 * * *", **COMMON):
    SparkSubmitOperator(
        task_id="compact",
        application="/opt/sparklog/jobs/compact.py",
        application_args=["--root", "s3://bucket/log", "--json"],
    )

with DAG("sparklog_verify", schedule="30 4 * * 0", **COMMON):
    SparkSubmitOperator(
        task_id="verify",
        application="/opt/sparklog/jobs/verify.py",
        application_args=["--root", "s3://bucket/log", "--json"],
    )
