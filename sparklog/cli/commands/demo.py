"""`make demo`: a year of real flights through a log and through brokers, every total checked.

Exit codes: 0 all totals right, 1 a difference or a failure, 2 usage error, 130 interrupted, 143
terminated.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from sparklog.cli.output import say
from sparklog.cli.target import ROOT_VARIABLE
from sparklog.core.errors import SparklogError
from sparklog.spark.demo.scene import Stage
from sparklog.spark.demo.story import play

FOLDER = "demo-root"
MASTER = "local[2]"


class DemoTerminated(Exception):
    """The process got SIGTERM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo, and return the exit code."""
    environment = dict(os.environ)  # noqa: TID251 - this is the edge
    stage = _stage(argv, environment)
    before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return 0 if play(stage, environment, sys.stdout) else 1
    except KeyboardInterrupt:
        say("interrupted; all processes of the demo have ended")
        return 130
    except DemoTerminated:
        return 143
    except (SparklogError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stage(argv: Sequence[str] | None, environment: dict[str, str]) -> Stage:
    parser = argparse.ArgumentParser(
        prog="python -m sparklog.cli.commands.demo",
        description="Send a year of flights through a log and through brokers, of which two are "
        "killed, and check that all come out.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--root",
        metavar="URL",
        help=f"where the log is: a folder, s3://bucket/prefix (default ${ROOT_VARIABLE}, else a "
        "folder in --folder), abfs:// or gs://. AWS_ENDPOINT_URL names the S3 server with the "
        "bucket; without it moto serves s3:// here",
    )
    parser.add_argument(
        "--folder",
        metavar="PATH",
        default=FOLDER,
        help="emptied at the start; keeps the Delta table and Spark's log (default %(default)s)",
    )
    parser.add_argument(
        "--master",
        default=environment.get("SPARK_MASTER") or MASTER,
        help=f"where Spark runs (default $SPARK_MASTER, else {MASTER}); brokers get three "
        "executors of this machine",
    )
    given = parser.parse_args(argv)
    folder = Path(given.folder).absolute()
    root = given.root or environment.get(ROOT_VARIABLE) or str(folder / "log")
    if "://" not in root:
        root = str(Path(root).absolute())
    return Stage(root, folder, given.master)


def _end(number: int, frame: FrameType | None) -> None:
    # Ignore further signals: they must not interrupt the end of the demo's processes.
    for known in (signal.SIGINT, signal.SIGTERM):
        signal.signal(known, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else DemoTerminated


if __name__ == "__main__":
    sys.exit(main())
