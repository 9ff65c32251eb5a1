"""The command line of `jobs/verify.py`: from words to a `VerifyJob`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.core.errors import InvalidRequest
from sparklog.log.layout import METADATA_TOPIC
from sparklog.spark.arguments import JobParser, add_dry_run, add_upkeep_options, log_root

_RANGE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,19})-(\d{1,19})")
_EXAMPLES = """
examples:
  spark-submit jobs/verify.py --root s3://bucket/log --quick
  spark-submit jobs/verify.py --root s3://bucket/log --topic orders --json
  spark-submit jobs/verify.py --root s3://bucket/log --repair --dry-run
  spark-submit jobs/verify.py --root s3://bucket/log --drop-damaged orders:3:18000-18500
exit codes: 0 nothing is damaged; 1 something is; 3 something was, and now nothing is
"""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Offsets that somebody gives up."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Which topics, and how thoroughly."""

    root: str
    topics: tuple[str, ...] = ()
    """None for all, the registry among them."""
    quick: bool = False
    json: bool = False
    repair: bool = False
    drops: tuple[DamagedRange, ...] = ()
    """What shall be given up."""
    dry_run: bool = False

    @property
    def changes(self) -> bool:
        """Say whether anything is to be put right."""
        return self.repair or bool(self.drops)


def parse_verify(argv: Sequence[str]) -> VerifyJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "verify.py",
        "Look every partition over: manifests, the chain of segments, leader epochs, checksums.\n"
        "Ends with code 1 if anything is damaged, and says what is lost. Changes nothing unless\n"
        "asked to by --repair or --drop-damaged.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all, and the registry")
    parser.add_argument(
        "--quick", action="store_true", help="look at manifests and footers, not at the records"
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument(
        "--repair", action="store_true",
        help="put right what loses nothing: hints that are wrong, manifests that can be written "
        "anew, merged objects whose parts are still there",
    )  # fmt: skip
    changes.add_argument(
        "--drop-damaged", action="append", default=[], metavar="TOPIC:PARTITION:BASE-END",
        help="give up these offsets, as verify tells them, so that what is around them can be read "
        "again; what can be read of the object is kept; may be given more than once",
    )  # fmt: skip
    add_dry_run(parser, "say what --repair or --drop-damaged would do, do nothing")
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> VerifyJob:
    if given.quick and given.drop_damaged:
        raise InvalidRequest("--drop-damaged reads all records of the object; leave out --quick")
    if given.drop_damaged and given.topic:
        raise InvalidRequest("--drop-damaged names its topics; leave out --topic")
    return VerifyJob(
        log_root(given),
        tuple(given.topic),
        given.quick,
        given.json,
        given.repair,
        tuple(_damaged_range(text) for text in given.drop_damaged),
        given.dry_run,
    )


def _damaged_range(text: str) -> DamagedRange:
    match = _RANGE.fullmatch(text)
    if match is None or int(match.group(3)) >= int(match.group(4)):
        raise InvalidRequest(f"--drop-damaged takes TOPIC:PARTITION:BASE-END, not {text!r}")
    topic, partition, base, end = match.groups()
    if topic == METADATA_TOPIC:
        raise InvalidRequest(
            f"without some of its records the registry is another one; bring {METADATA_TOPIC} "
            "back from a copy of the bucket"
        )
    return DamagedRange(topic, int(partition), int(base), int(end))
