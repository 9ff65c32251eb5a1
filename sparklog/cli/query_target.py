"""The topics that a command queries: under a root, or through brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.target import bootstrap_of, client_settings_of, opened_log
from sparklog.sql.topics import BrokerTopics, RootTopics, TopicReader


def add_query_options(parser: CommandParser) -> None:
    """Declare the options that say which records a query reads."""
    parser.add_argument(
        "--isolation-level",
        choices=["read_committed", "read_uncommitted"],
        default="read_uncommitted",
        help="whether to read records of transactions that are open or aborted "
        "(default read_uncommitted)",
    )
    parser.add_argument(
        "--flushed-only",
        action="store_true",
        help="of a root: ask no brokers, read what is in the storage",
    )


@contextmanager
def opened_topics(args: Arguments) -> Iterator[TopicReader]:
    """Open the topics that the options name, and close them afterwards."""
    committed_only = str(args.isolation_level) == "read_committed"
    bootstrap = bootstrap_of(args) if hasattr(args, "bootstrap_server") else None
    with ExitStack() as closing:
        if bootstrap is not None:
            if args.flushed_only:
                raise UsageError("--flushed-only reads the storage; give --root")
            settings = client_settings_of(args)
            yield closing.enter_context(
                BrokerTopics(bootstrap, committed_only=committed_only, settings=settings)
            )
            return
        from sparklog.client.security import SecuritySettings  # noqa: PLC0415 - brokers need it

        settings = client_settings_of(args)
        log = closing.enter_context(opened_log(args))
        yield closing.enter_context(
            RootTopics(
                log,
                committed_only=committed_only,
                includes_unflushed=not args.flushed_only,
                security=SecuritySettings(settings) if settings else None,
            )
        )
