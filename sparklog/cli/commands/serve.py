"""`sparklog serve`: brokers as tasks of a Spark application, by default one on this machine.

Equivalent to `spark-submit jobs/serve.py`, without spark-submit.
"""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output
from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import EXAMPLES, add_serve_options, serve_job
from sparklog.spark.serve.serve import serve_with
from sparklog.spark.serve.task_broker import run as run_broker


def configure(parser: CommandParser) -> None:
    """Declare the command's options."""
    add_serve_options(parser)
    parser.epilog = EXAMPLES


def run(args: Arguments, output: Output) -> int:
    """Run brokers until the process gets a signal to end; the job itself prints."""
    try:
        job = serve_job(args)
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    return run_job("sparklog serve", lambda _: job, serve_with(run_broker), [])
