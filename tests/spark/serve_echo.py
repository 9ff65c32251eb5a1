"""`jobs/serve.py` with brokers that only echo: a program for tests."""

from __future__ import annotations

import sys

from sparklog.spark.jobs.job import run_job
from sparklog.spark.schedule import job_kinds
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.serve import serve_with
from tests.spark import echo_broker

CRASHING = "tests.spark.crashing_job"

if __name__ == "__main__":
    kinds = {**job_kinds._MODULES, "crash": (CRASHING, CRASHING)}
    job_kinds._MODULES = kinds
    sys.exit(run_job("sparklog serve", parse_serve, serve_with(echo_broker.run)))
