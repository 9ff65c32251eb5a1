"""The command line of `jobs/retain.py`: from words to a `RetainJob`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.log.garbage import ORPHAN_AGE_MS
from sparklog.spark.arguments import (
    JobParser,
    add_dry_run,
    add_upkeep_options,
    counting_number,
    log_root,
)

HOUR_MS = 3_600_000

_EXAMPLES = """
examples:
  spark-submit jobs/retain.py --root s3://bucket/log --dry-run
  spark-submit jobs/retain.py --root s3://bucket/log --topic clicks --topic orders --json
"""


@dataclass(frozen=True, slots=True)
class RetainJob:
    """Which topics, and how."""

    root: str
    topics: tuple[str, ...] = ()
    """None for all, and then what lies beside the topics, too."""
    dry_run: bool = False
    orphan_age_ms: int = ORPHAN_AGE_MS
    json: bool = False


def parse_retain(argv: Sequence[str]) -> RetainJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "retain.py",
        "Let go what retention.ms, retention.bytes and DeleteRecords say, and delete the objects\n"
        "that nothing needs: file.delete.delay.ms after the log start moved, so in a later run.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all, and what lies beside")
    add_dry_run(parser)
    parser.add_argument(
        "--orphan-hours", type=counting_number, default=ORPHAN_AGE_MS // HOUR_MS, metavar="N",
        help="age at which what no manifest ever named goes: more than the longest write takes "
        "(default: %(default)s)",
    )  # fmt: skip
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> RetainJob:
    age_ms = given.orphan_hours * HOUR_MS
    return RetainJob(log_root(given), tuple(given.topic), given.dry_run, age_ms, given.json)
