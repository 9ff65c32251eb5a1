"""Arguments: the common command line of jobs (a parser, the log's root, the way a stream runs)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.spark.access.log_options import ROOT_VARIABLE, parse_root
from sparklog.spark.jobs.metrics_option import add_metrics_option
from sparklog.spark.jobs.streaming import StreamPace

Job = TypeVar("Job")


class JobParser(argparse.ArgumentParser):
    """The parser of one job. Options are spelled in full: scripts must survive new options."""

    def __init__(self, program: str, summary: str, examples: str) -> None:
        """Name the job as a person types it."""
        super().__init__(
            prog=program,
            description=summary,
            epilog=examples,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def parsed(self, argv: Sequence[str], job_of: Callable[[argparse.Namespace], Job]) -> Job:
        """Return the job that the words describe; a wrong call ends the process with code 2."""
        given = self.parse_args(argv)
        try:
            return job_of(given)
        except InvalidRequest as error:
            self.error(str(error))


def counting_number(text: str) -> int:
    """Return a number of at least one, for `type=`."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1: {text!r}")
    return int(text)


def key_values(given: Iterable[str], option: str) -> dict[str, str]:
    """Return `key=value` words as a dictionary; a later one wins, a value may be empty.

    Raises:
        InvalidRequest: a word without '='.
    """
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(f"{option} takes key=value, not {word!r}")
        found[key.strip()] = value
    return found


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Declare where the log is and how the report looks."""
    parser.add_argument(
        "--root",
        metavar="URL",
        help=f"where the log is: a folder, file://…, s3://bucket/prefix (default ${ROOT_VARIABLE})",
    )
    parser.add_argument("--json", action="store_true", help="report as one JSON object")


def add_upkeep_options(parser: argparse.ArgumentParser, all_topics: str) -> None:
    """Declare the log, its topics, the report and the metrics of a job that looks a log over."""
    add_log_options(parser)
    add_metrics_option(parser)
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME",
        help=f"only this topic; may be given more than once (default: {all_topics})",
    )  # fmt: skip


def add_dry_run(
    parser: argparse.ArgumentParser, help_text: str = "say what would be done, do nothing"
) -> None:
    """Declare that nothing shall be changed."""
    parser.add_argument("--dry-run", action="store_true", help=help_text)


def log_root(given: argparse.Namespace) -> str:
    """Return the log's root; a path is made absolute, because tasks run in other folders.

    Raises:
        InvalidRequest: no root was given.
    """
    try:
        return parse_root(given.root)
    except InvalidConfig:
        raise InvalidRequest(f"which log? give --root URL or set {ROOT_VARIABLE}") from None


def add_pace_options(parser: JobParser, stream_help: str) -> None:
    """Declare how a stream runs."""
    group = parser.add_argument_group("streaming")
    group.add_argument("--stream", action="store_true", help=stream_help)
    group.add_argument(
        "--available-now",
        action="store_true",
        help="stream what is there now in bounded batches, then end (implies --stream)",
    )
    group.add_argument(
        "--checkpoint", metavar="PATH", help="where the stream keeps its place; needed to stream"
    )
    group.add_argument(
        "--trigger", metavar="INTERVAL", help='time between batches, for example "10 seconds"'
    )


def pace_of(given: argparse.Namespace, *, needs_checkpoint: bool = True) -> StreamPace | None:
    """Return how the stream runs, None when the work is not a stream.

    Raises:
        InvalidRequest: options that do not go together.
    """
    if not (given.stream or given.available_now):
        if given.checkpoint is not None or given.trigger is not None:
            raise InvalidRequest("--checkpoint and --trigger are for a stream: add --stream")
        return None
    if given.available_now and given.trigger is not None:
        raise InvalidRequest("--available-now runs without pauses: leave --trigger out")
    if needs_checkpoint and given.checkpoint is None:
        raise InvalidRequest(
            "a stream needs --checkpoint, a folder where it keeps its place: with it, records are "
            "neither lost nor written twice when it is started again"
        )
    return StreamPace(given.available_now, given.trigger, given.checkpoint)
