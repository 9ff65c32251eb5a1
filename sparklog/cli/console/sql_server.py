"""`sparklog sql --serve`: queries over HTTP, for a root or for brokers."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output, say
from sparklog.cli.query_target import opened_topics, registry_of
from sparklog.cli.target import bootstrap_of, client_settings_of
from sparklog.core.errors import InvalidConfig
from sparklog.sql.engine import DecodeRules, QueryLimits
from sparklog.sql.topics import RootTopics

if TYPE_CHECKING:
    from sparklog.sql.arrivals import ArrivalQuery, ArrivalSource
    from sparklog.sql.http.access import BasicLogin, TopicAccess
    from sparklog.sql.http.server import OpenArrivals
    from sparklog.sql.topics import TopicReader

TIMEOUT_S: Final = 60.0
"""For a query, unless `--timeout` says another time."""
PORT_MAX: Final = 65_535
_LOOPBACK: Final = "127.0.0.1"


def add_serve_options(parser: CommandParser) -> None:
    """Declare the options of the server."""
    parser.add_argument(
        "--serve", type=place_to_listen, metavar="[HOST:]PORT",
        help=f"answer queries over HTTP; port 0 is a free one (default host {_LOOPBACK})",
    )  # fmt: skip
    parser.add_argument(
        "--login", action="store_true", help="with --serve: have users of the log log in"
    )
    parser.add_argument(
        "--without-login", action="store_true",
        help="with --serve: answer everyone who reaches the port, also beyond loopback",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="with --serve: a host name by which clients reach it, such as a proxy's",
    )  # fmt: skip


def place_to_listen(text: str) -> tuple[str, int]:
    """Return the host and port of `[HOST:]PORT`, for `type=`."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"not [HOST:]PORT: {text!r}")
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)


def serve(args: Arguments, output: Output, limits: QueryLimits, rules: DecodeRules) -> int:
    """Serve until the process gets a signal to end."""
    # Queries of the command line take the options of this module, and shall start at once.
    from sparklog.core.web_requests import (  # noqa: PLC0415
        LOOPBACK_NAMES,
        is_loopback,
        open_socket,
        url_of,
    )

    host, port = args.serve
    local = is_loopback(host)
    if args.login and args.without_login:
        raise UsageError("--login and --without-login exclude each other")
    if not (local or args.login or args.without_login):
        raise UsageError(
            "beyond loopback everyone could read the log; add --login or --without-login"
        )
    _check_libraries()
    from sparklog.registry.http.serving import serve_application  # noqa: PLC0415 - needs the extra
    from sparklog.sql.http.server import QueryService, application  # noqa: PLC0415 - likewise

    if limits.timeout_s is None:
        limits = replace(limits, timeout_s=TIMEOUT_S)
    named = frozenset(name.lower() for name in args.allow_host)
    hosts = LOOPBACK_NAMES | named | {host.lower()} if local or named else frozenset()
    with _opened_access(args) as access:
        service = QueryService(access, _arrivals(args), limits, rules)
        with open_socket(host, port) as listening:
            url = url_of(host, listening)
            output.put(f"SQL over HTTP at {url}", {"url": url})
            output.flush()
            if not local and not args.login:
                say("note: whoever reaches the port may read every topic")
            serve_application(application(service, hosts), [listening], finish_s=2)
    return 0


@contextmanager
def _opened_access(args: Arguments) -> Iterator[TopicAccess]:
    from sparklog.sql.http.access import (  # noqa: PLC0415 - needs the extra
        BrokerAccess,
        OpenAccess,
        RootAccess,
    )

    bootstrap = bootstrap_of(args)
    if args.login and bootstrap is not None:
        yield BrokerAccess(
            bootstrap,
            client_settings_of(args),
            committed_only=str(args.isolation_level) == "read_committed",
            schema_registry=registry_of(args),
        )
        return
    with ExitStack() as closing:
        topics = closing.enter_context(opened_topics(args))
        if not args.login:
            yield OpenAccess(topics)
            return
        assert isinstance(topics, RootTopics), "there are no brokers"
        assert topics.log is not None, "there is a root"
        yield RootAccess(topics, topics.log)


def _arrivals(args: Arguments) -> OpenArrivals:
    from sparklog.cli.console.arrival_printer import followed_topic  # noqa: PLC0415 - as `serve`
    from sparklog.client.security import with_login  # noqa: PLC0415
    from sparklog.client.values import EARLIEST, LATEST  # noqa: PLC0415

    bootstrap, settings = bootstrap_of(args), client_settings_of(args)

    def opened(
        topics: TopicReader, query: ArrivalQuery, login: BasicLogin | None, from_beginning: bool
    ) -> AbstractContextManager[ArrivalSource]:
        own = settings
        if args.login and bootstrap is not None and login is not None:
            own = with_login(settings, login.name, login.password)
        start = EARLIEST if from_beginning else LATEST
        return followed_topic(
            topics, query, start, bootstrap, own, asks_brokers=not args.flushed_only
        )

    return opened


def _check_libraries() -> None:
    for name in ("starlette", "uvicorn", "anyio"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            raise InvalidConfig(
                f"--serve needs more libraries: pip install 'sparklog[sql]'. missing={missing.name}"
            ) from missing
