"""`sparklog log-dirs`: kafka-log-dirs, the replicas on each broker with their sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output
from sparklog.cli.target import add_broker_options, connected
from sparklog.client.values import ServingBroker
from sparklog.core.errors import InvalidRequest, SparklogError

DOCUMENT_VERSION = 1


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--describe", action="store_true", required=True, help="show what brokers hold"
    )
    parser.add_argument("--broker-list", metavar="ID,...", help="of these brokers; all without it")
    parser.add_argument("--topic-list", metavar="NAME,...", help="of these topics; all without it")
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print one JSON document, as Kafka does; one per broker with --json."""
    with connected(args) as admin:
        brokers = chosen_brokers(admin.brokers(), args.broker_list)
        topics = None if args.topic_list is None else set(args.topic_list.split(","))
        ids = ",".join(str(broker.broker_id) for broker in brokers)
        output.line("Querying brokers for log directories information")
        found = [
            {
                "broker": broker.broker_id,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(tp),
                                "size": replica.size_bytes,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.future,
                            }
                            for tp, replica in sorted(log_dir.replicas.items())
                            if topics is None or tp.topic in topics
                        ],
                        "error": _error(log_dir.error),
                        "logDir": log_dir.path,
                    }
                    for log_dir in admin.log_dirs(broker)
                ],
            }
            for broker in brokers
        ]
    output.line(f"Received log directory information from brokers {ids}")
    document: dict[str, Any] = {"brokers": found, "version": DOCUMENT_VERSION}
    output.line(json.dumps(document, separators=(",", ":")))
    for one in found:
        output.document(one)
    return 0


def chosen_brokers(brokers: Sequence[ServingBroker], wanted: str | None) -> list[ServingBroker]:
    """Return the brokers of a list such as `1,2`; all without a list.

    Raises:
        UsageError: not numbers with commas between them. InvalidRequest: no such broker.
    """
    if wanted is None:
        return list(brokers)
    words = [word.strip() for word in wanted.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"brokers are numbers with commas between them, not {wanted!r}")
    ids = {int(word) for word in words}
    unknown = ids - {broker.broker_id for broker in brokers}
    if unknown:
        raise InvalidRequest(
            "no such broker serves; `sparklog brokers` lists them. "
            f"brokers={','.join(map(str, sorted(unknown)))}"
        )
    return [broker for broker in brokers if broker.broker_id in ids]


def _error(error: SparklogError | None) -> str | None:
    return None if error is None else str(error)
