"""`sparklog run`: one of the jobs of `jobs/`, in a Spark of this machine.

It runs the same file as spark-submit would, without spark-submit.
"""

from __future__ import annotations

import argparse
import runpy
import sys

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.output import Output
from sparklog.core.shipped_files import JOB_NAMES, job_file

_EPILOG = """
examples:
  sparklog run compact --root s3://bucket/log --dry-run
  sparklog run produce --help

On a cluster spark-submit runs the same job:
  spark-submit --master URL "$(sparklog jobs --path compact)" --root s3://bucket/log
"""


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", choices=JOB_NAMES, help="which job")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="the job's own options")
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Run the job, which prints by itself, and return its exit code."""
    path = str(job_file(args.job))
    before = sys.argv
    sys.argv = [path, *args.options]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return 0
