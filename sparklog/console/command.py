"""`sparklog console`: serves the web console for a root or for brokers."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import socket
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Final

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    key_values,
    suggestion,
    whole_number,
)
from sparklog.cli.output import Output
from sparklog.cli.target import add_log_options, bootstrap_of, client_settings_of, root_of
from sparklog.core.errors import InvalidConfig

if TYPE_CHECKING:
    from sparklog.console.app import ConsoleApp
    from sparklog.console.resources import ConsoleRole
    from sparklog.console.sessions import ConsoleSessions

PORT: Final = 9099
ROLES: Final = ("viewer", "editor", "admin")
_EPILOG = """
Without --login everyone who reaches the port has the same rights: the console then serves loopback
only, unless --read-only is given. With --login people log in as users of the log
(`sparklog users`). At brokers the console acts as each of them, so ACLs decide. On a root --role
gives rights; a user without one only views.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    parser.add_argument(
        "--port", type=whole_number, default=PORT, metavar="N",
        help=f"port; 0 for a free one (default {PORT})",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a host name by which browsers reach the console, such as a proxy's",
    )  # fmt: skip
    parser.add_argument("--read-only", action="store_true", help="let no user change anything")
    parser.add_argument("--login", action="store_true", help="have users of the log log in")
    parser.add_argument(
        "--role", action="append", default=[], metavar="USER=ROLE",
        help=f"with --root and --login: a user's role: {', '.join(ROLES)} (default viewer)",
    )  # fmt: skip
    parser.add_argument(
        "--https-cookies", action="store_true",
        help="send cookies over HTTPS only, behind a proxy with TLS",
    )  # fmt: skip
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Serve until interrupted."""
    _check(args)
    for needed in ("starlette", "uvicorn", "jinja2"):
        try:
            importlib.import_module(needed)
        except ImportError as error:
            raise InvalidConfig(
                "the console needs further packages; run pip install 'sparklog[console]'. "
                f"missing={needed}"
            ) from error
    app = application(args)
    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((args.host, args.port))
        port = listening.getsockname()[1]
        where = f"[{args.host}]" if ":" in args.host else args.host
        url = f"http://{where}:{port}/"
        output.put(f"The console is at {url}", {"url": url})
        output.flush()
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        logging.getLogger("sparklog.console").setLevel(logging.INFO)
        _serve(app, listening)
    return 0


def application(args: Arguments) -> ConsoleApp:
    """Return the application that the options describe."""
    from sparklog.console.app import ConsoleApp  # noqa: PLC0415 - needs the extra
    from sparklog.console.web_guard import LOOPBACK  # noqa: PLC0415 - likewise

    named = frozenset(name.lower() for name in (args.host, *args.allow_host))
    bound_to_all = args.host in {"0.0.0.0", "::"} and not args.allow_host  # noqa: S104 - compared
    return ConsoleApp(
        _sessions(args),
        version=metadata.version("sparklog"),
        secure=args.https_cookies,
        hosts=frozenset() if bound_to_all else LOOPBACK | named,
    )


def _check(args: Arguments) -> None:
    if not (args.login or args.read_only or _is_loopback(args.host)):
        raise UsageError(
            "beyond loopback everyone could change the log; add --login or --read-only"
        )
    if args.role and not args.login:
        raise UsageError("--role goes with --login")
    if args.role and bootstrap_of(args) is not None:
        raise UsageError("--role is for a root; at brokers ACLs decide")
    if bootstrap_of(args) is None and root_of(args) is None:
        raise UsageError("which log? give --root URL or --bootstrap-server HOST:PORT")


def _sessions(args: Arguments) -> ConsoleSessions:
    from sparklog.console.broker_view import BrokerView  # noqa: PLC0415 - needs the extra
    from sparklog.console.resources import ConsoleRole  # noqa: PLC0415 - likewise
    from sparklog.console.root_view import RootView  # noqa: PLC0415 - likewise
    from sparklog.console.sessions import (  # noqa: PLC0415 - likewise
        BrokerLogins,
        ConsoleSessions,
        ConsoleUser,
        RootLogins,
    )

    most = ConsoleRole.VIEWER if args.read_only else ConsoleRole.ADMIN
    bootstrap, settings = bootstrap_of(args), client_settings_of(args)
    if bootstrap is not None:
        if args.login:
            return ConsoleSessions(None, BrokerLogins(bootstrap, settings, most))
        return ConsoleSessions(ConsoleUser("", most, BrokerView(bootstrap, settings)), None)
    view = RootView(root_of(args) or "")
    if args.login:
        roles = {user: min(most, role) for user, role in _roles(args.role).items()}
        return ConsoleSessions(None, RootLogins(view, roles))
    return ConsoleSessions(ConsoleUser("", most, view), None)


def _roles(given: Sequence[str]) -> dict[str, ConsoleRole]:
    from sparklog.console.resources import ConsoleRole  # noqa: PLC0415 - needs the extra

    found = {}
    for user, word in key_values(given, "--role").items():
        if word not in ROLES:
            raise UsageError(f"--role knows no role {word!r}; {suggestion(word, ROLES)}")
        found[user] = ConsoleRole[word.upper()]
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(app: ConsoleApp, listening: socket.socket) -> None:
    import uvicorn  # noqa: PLC0415 - needs the extra

    config = uvicorn.Config(
        app.starlette, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=2, h11_max_incomplete_event_size=32 * 1024,
    )  # fmt: skip
    server = uvicorn.Server(config)
    app.is_stopping = lambda: server.should_exit
    server.run(sockets=[listening])
