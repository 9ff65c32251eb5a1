"""The command line of `jobs/compact.py`: from words to a `CompactJob`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.spark.arguments import JobParser, add_dry_run, add_upkeep_options, log_root

_EXAMPLES = """
examples:
  spark-submit jobs/compact.py --root s3://bucket/log --dry-run
  spark-submit jobs/compact.py --root s3://bucket/log --topic customers --force --json
"""


@dataclass(frozen=True, slots=True)
class CompactJob:
    """Which topics, and how."""

    root: str
    topics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False
    merges: bool = True
    json: bool = False


def parse_compact(argv: Sequence[str]) -> CompactJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "compact.py",
        "Keep the newest record of each key in topics with cleanup.policy=compact, and make large\n"
        "objects of small ones in all topics. Brokers and writers go on meanwhile.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all")
    add_dry_run(parser)
    parser.add_argument(
        "--force", action="store_true", help="compact whatever min.cleanable.dirty.ratio says"
    )
    parser.add_argument("--no-merge", action="store_true", help="leave small objects as they are")
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> CompactJob:
    return CompactJob(
        log_root(given),
        tuple(given.topic),
        given.dry_run,
        given.force,
        not given.no_merge,
        given.json,
    )
