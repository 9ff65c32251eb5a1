"""The command line of `jobs/compact.py`: from words to a `CompactJob`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.core.errors import InvalidRequest
from sparklog.spark.arguments import JobParser, add_log_options, log_root
from sparklog.spark.metrics_option import add_metrics_option

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
    add_log_options(parser)
    add_metrics_option(parser)
    parser.add_argument(
        "--topic", action="append", default=[],
        help="only this topic; may be given more than once (default: all)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    parser.add_argument(
        "--force", action="store_true", help="compact whatever min.cleanable.dirty.ratio says"
    )
    parser.add_argument("--no-merge", action="store_true", help="leave small objects as they are")
    given = parser.parse_args(argv)
    try:
        root = log_root(given)
    except InvalidRequest as error:
        parser.error(str(error))
    return CompactJob(
        root, tuple(given.topic), given.dry_run, given.force, not given.no_merge, given.json
    )
