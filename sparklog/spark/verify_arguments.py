"""The command line of `jobs/verify.py`: from words to a `VerifyJob`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.core.errors import InvalidRequest
from sparklog.spark.arguments import JobParser, add_log_options, log_root
from sparklog.spark.metrics_option import add_metrics_option

_EXAMPLES = """
examples:
  spark-submit jobs/verify.py --root s3://bucket/log --quick
  spark-submit jobs/verify.py --root s3://bucket/log --topic orders --json
"""


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Which topics, and how thoroughly."""

    root: str
    topics: tuple[str, ...] = ()
    """None for all, the registry among them."""
    quick: bool = False
    json: bool = False


def parse_verify(argv: Sequence[str]) -> VerifyJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "verify.py",
        "Look every partition over: manifests, the chain of segments, leader epochs, checksums.\n"
        "Ends with code 1 if anything is damaged, and says what is lost. Changes nothing.",
        _EXAMPLES,
    )
    add_log_options(parser)
    add_metrics_option(parser)
    parser.add_argument(
        "--topic", action="append", default=[],
        help="only this topic; may be given more than once (default: all, and the registry)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="look at manifests and footers, not at the records"
    )
    given = parser.parse_args(argv)
    try:
        root = log_root(given)
    except InvalidRequest as error:
        parser.error(str(error))
    return VerifyJob(root, tuple(given.topic), given.quick, given.json)
