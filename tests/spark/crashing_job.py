"""A job that ends the executor that it runs on: `kind = "crash"` in the schedules of tests."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.spark.jobs.job import JobReport, OpenSession
from sparklog.spark.jobs.progress import JobProgress

EXPRESSIONS = {
    "exit": "java_method('java.lang.System', 'exit', CAST(3 + id AS INT))",
    "memory": "length(repeat('x', CAST(2000000000 + id AS INT)))",
    "stack": "repeat('ab', CAST(1000000 + id AS INT)) RLIKE '^(a|b)*$'",
}


def parse_crash(argv: Sequence[str]) -> str:
    """Return the expression that ends an executor."""
    return EXPRESSIONS[next(word for word in argv if word in EXPRESSIONS)]


def crash(expression: str, open_session: OpenSession, progress: JobProgress) -> JobReport:
    """Run it."""
    open_session({}).range(0, 1, 1, 1).selectExpr(expression).collect()
    raise AssertionError("the executor survived")
