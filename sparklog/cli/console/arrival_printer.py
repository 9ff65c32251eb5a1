"""Follows a topic for `sparklog sql --follow`: records as they arrive, through a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from sparklog.cli.arguments import Arguments
from sparklog.cli.console.record_sources import LogFollower, RecordSource
from sparklog.cli.console.result_output import ResultOutput
from sparklog.cli.output import Output, say
from sparklog.cli.target import bootstrap_of, client_settings_of
from sparklog.client.security import SecuritySettings
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.log import Log
from sparklog.spark.access.leaders import registered
from sparklog.sql.arrivals import ArrivalQuery
from sparklog.sql.topics import TopicReader


def print_arrivals(
    args: Arguments, topics: TopicReader, query: ArrivalQuery, results: ResultOutput, output: Output
) -> None:
    """Print the rows of arriving records until `--max-rows` or an interrupt.

    Raises:
        InvalidRequest: a value does not decode. SparklogError: reading cannot go on.
    """
    left: int | None = args.max_rows
    with opened_source(args, topics, query) as source:
        while True:
            for arrived in source.ready(None):
                for rows in query.answer(arrived.topic_partition, arrived.batch):
                    some = rows if left is None else rows.slice(0, left)
                    results.put(some)
                    left = None if left is None else left - some.num_rows
                    if left == 0:
                        return
            output.flush()
            source.wait(None)


@contextmanager
def opened_source(
    args: Arguments, topics: TopicReader, query: ArrivalQuery
) -> Iterator[RecordSource]:
    """Open the topic of a query at its end, or at its start with `--from-beginning`."""
    with followed_topic(
        topics,
        query,
        EARLIEST if args.from_beginning else LATEST,
        bootstrap_of(args),
        client_settings_of(args),
        asks_brokers=not args.flushed_only,
    ) as source:
        yield source


@contextmanager
def followed_topic(
    topics: TopicReader,
    query: ArrivalQuery,
    start: int,
    bootstrap: str | None,
    settings: Mapping[str, str],
    *,
    asks_brokers: bool = True,
) -> Iterator[RecordSource]:
    """Open the topic of a query at EARLIEST or LATEST.

    Records of a topic that brokers lead come from the brokers, also if a root is given.

    Args:
        topics: with the topic.
        query: names the topic, and the columns to read.
        start: EARLIEST or LATEST.
        bootstrap: brokers; None finds those of a root.
        settings: TLS and SASL for the brokers.
        asks_brokers: False reads only what is in the storage of a root.
    """
    committed_only = topics.committed_only
    if bootstrap is None and asks_brokers:
        bootstrap = _leading_brokers(topics.log, query.topic, settings)
    if not bootstrap:
        log = topics.log
        assert log is not None, "there is a root or there are brokers"
        follower = LogFollower(log, query.columns, say, committed_only=committed_only)
        follower.add_topic(query.topic, start)
        yield follower
        return
    from sparklog.cli.console.broker_source import BrokerSource  # noqa: PLC0415 - a root needs none
    from sparklog.client.admin import Admin  # noqa: PLC0415 - likewise
    from sparklog.client.consumer import Consumer  # noqa: PLC0415 - likewise

    isolation = "read_committed" if committed_only else "read_uncommitted"
    with ExitStack() as closing:
        admin = closing.enter_context(Admin(bootstrap, settings=settings))
        consumer = closing.enter_context(
            Consumer(bootstrap, settings={"isolation.level": isolation, **settings})
        )
        source = BrokerSource(consumer, query.columns)
        source.assign(admin, [query.topic], start)
        yield source


def _leading_brokers(log: Log | None, topic: str, settings: Mapping[str, str]) -> str:
    """Return the brokers of a topic under a root that brokers lead, or '' for none."""
    if log is None:
        return ""
    image = log.refresh()
    if not any(state.leader >= 0 for state in log.topic(topic).partition_states):
        return ""
    return registered(image, SecuritySettings(settings) if settings else None)
