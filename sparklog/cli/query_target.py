"""The topics that a command queries: under a root, or through brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.target import bootstrap_of, client_settings_of, opened_log
from sparklog.sql.topics import BrokerTopics, RootTopics, TopicReader, needs_registry

if TYPE_CHECKING:
    from sparklog.registry.bare_schema import BareSchema

REGISTRY_VARIABLE: Final = "SPARKLOG_SCHEMA_REGISTRY"


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


def add_registry_option(parser: CommandParser) -> None:
    """Declare the option that says where schemas are."""
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        help="where the schemas of registry.TOPIC are (default: in the log itself, or "
        f"${REGISTRY_VARIABLE})",
    )


def add_value_schema_option(parser: CommandParser) -> None:
    """Declare the option that gives values a schema."""
    parser.add_argument(
        "--value-schema",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="the schema of all values of bare.TOPIC: orders=orders.avsc, orders.json (JSON "
        "Schema), or orders.proto#shop.Order with the name of the message",
    )


def value_schemas_of(args: Arguments) -> dict[str, BareSchema]:
    """Return the schemas that `--value-schema` gives, by topic."""
    found: dict[str, BareSchema] = {}
    for text in args.value_schema:
        try:
            from sparklog.registry.bare_schema import read_bare_schema  # noqa: PLC0415 - of an extra
        except ModuleNotFoundError as missing:
            raise needs_registry(missing) from missing

        topic, _, place = text.partition("=")
        if not topic or not place:
            raise UsageError(f"--value-schema takes TOPIC=FILE, not {text!r}")
        found[topic] = read_bare_schema(place)
    return found


@contextmanager
def opened_topics(args: Arguments) -> Iterator[TopicReader]:
    """Open the topics that the options name, and close them afterwards."""
    committed_only = str(args.isolation_level) == "read_committed"
    bootstrap = bootstrap_of(args) if hasattr(args, "bootstrap_server") else None
    registry = registry_of(args)
    with ExitStack() as closing:
        if bootstrap is not None:
            if args.flushed_only:
                raise UsageError("--flushed-only reads the storage; give --root")
            settings = client_settings_of(args)
            yield closing.enter_context(
                BrokerTopics(
                    bootstrap,
                    committed_only=committed_only,
                    settings=settings,
                    schema_registry=registry,
                )
            )
            return
        settings = client_settings_of(args)
        security: SecuritySettings | None = None
        if settings:
            from sparklog.client.security import SecuritySettings  # noqa: PLC0415 - seldom

            security = SecuritySettings(settings)
        log = closing.enter_context(opened_log(args))
        yield closing.enter_context(
            RootTopics(
                log,
                committed_only=committed_only,
                includes_unflushed=not args.flushed_only,
                security=security,
                schema_registry=registry,
            )
        )


def registry_of(args: Arguments) -> str | None:
    """Return the URL of the schema registry, by option or environment."""
    given: str | None = getattr(args, "schema_registry", None)
    return given or os.environ.get(REGISTRY_VARIABLE) or None  # noqa: TID251 - the edge
