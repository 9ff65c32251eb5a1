"""`sparklog console`: serves the web console for a root or for brokers."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    key_values,
    suggestion,
    whole_number,
)
from sparklog.cli.metrics_pages import page_url
from sparklog.cli.output import Output
from sparklog.cli.target import add_log_options, bootstrap_of, client_settings_of, root_of
from sparklog.core.config.providers import read_bounded
from sparklog.core.errors import InvalidConfig
from sparklog.core.web_requests import LOOPBACK_NAMES, is_loopback, open_socket, url_of

if TYPE_CHECKING:
    import uvicorn

    from sparklog.console.app import ConsoleApp
    from sparklog.console.bill import Bill, CounterSources
    from sparklog.console.oidc import OidcLogins
    from sparklog.console.resources import ConsoleRole
    from sparklog.console.sessions import ConsoleSessions

PORT: Final = 9099
END_WITHIN_S: Final = 5.0
SCOPE: Final = "openid profile"
ROLES: Final = ("viewer", "editor", "admin")
_EPILOG = """
Without --login everyone who reaches the port has the same rights: the console then serves loopback
only, unless --read-only is given. With --login people log in as users of the log
(`sparklog users`). At brokers the console acts as each of them, so ACLs decide. On a root --role
gives rights; a user without one only views. With --oidc-issuer people log in at an OpenID provider.
At brokers the console then acts by their access tokens.
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
    parser.add_argument(
        "--metrics-page", action="append", default=[], metavar="HOST:PORT",
        help="a broker's page for Prometheus, whose counters the bill shows; may be given more "
        "than once",
    )  # fmt: skip
    parser.add_argument(
        "--prices", type=Path, metavar="FILE",
        help="prices of requests and storage in TOML (default: S3 Standard in us-east-1)",
    )  # fmt: skip
    provider = parser.add_argument_group("OpenID Connect")
    provider.add_argument("--oidc-issuer", metavar="URL", help="have users log in at this provider")
    provider.add_argument("--oidc-client-id", metavar="ID", help="the console's id there")
    provider.add_argument(
        "--oidc-client-secret-file", type=Path, metavar="FILE",
        help="a file with the console's secret there (default: a public client)",
    )  # fmt: skip
    provider.add_argument(
        "--oidc-scope", default=SCOPE, metavar="WORDS", help=f"scopes (default {SCOPE!r})"
    )
    provider.add_argument(
        "--oidc-name-claim", default="sub", metavar="CLAIM",
        help="the claim with the user's name on a root (default sub)",
    )  # fmt: skip
    provider.add_argument(
        "--public-url", metavar="URL",
        help="the address by which browsers reach the console (default http://HOST:PORT)",
    )  # fmt: skip
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Serve until interrupted."""
    _check(args)
    _check_installed()
    app = application(args)
    with open_socket(args.host, args.port) as listening:
        url = url_of(args.host, listening) + "/"
        output.put(f"The console is at {url}", {"url": url})
        output.flush()
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        logging.getLogger("sparklog.console").setLevel(logging.INFO)
        _server(app).run(sockets=[listening])
    return 0


@contextmanager
def served(
    root: str,
    port: int,
    *,
    login: bool,
    pages: Callable[[], Mapping[str, str]],
    counters: CounterSources,
    brokers: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Serve a root on loopback from a thread, and lend the address.

    Args:
        root: the root.
        port: 0 takes a free one.
        login: have users of the log log in, as viewers; else everyone on this machine may change
            the log.
        pages: returns the brokers' pages for Prometheus, by their names on the bill.
        counters: of this process, by their names on the bill.
        brokers: a client's settings for the brokers of the root, which pages of members and
            transactions ask. A user's name and password join them. None: pages ask no broker.

    Raises:
        InvalidConfig: the packages are missing. OSError: the port is taken.
    """
    _check_installed()
    options = ["--root", root, "--port", str(port), *(["--login"] if login else [])]
    parser = CommandParser("console", "")
    configure(parser)
    args = parser.parse_args(options)
    server = _server(application(args, counters, pages, brokers))
    with open_socket(args.host, args.port) as listening:
        thread = Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="sparklog-console", daemon=True
        )
        thread.start()
        try:
            yield url_of(args.host, listening) + "/"
        finally:
            server.should_exit = True
            thread.join(END_WITHIN_S)


def _check_installed() -> None:
    for needed in ("starlette", "uvicorn", "jinja2"):
        try:
            importlib.import_module(needed)
        except ImportError as error:
            raise InvalidConfig(
                "the console needs further packages; run pip install 'sparklog[console]'. "
                f"missing={needed}"
            ) from error


def application(
    args: Arguments,
    counters: CounterSources | None = None,
    pages: Callable[[], Mapping[str, str]] | None = None,
    brokers: Mapping[str, str] | None = None,
) -> ConsoleApp:
    """Return the application that the options describe.

    On a root the bill has `counters`, too, and those of the brokers' pages that `pages` returns.
    `brokers` are a client's settings for the brokers of the root; None asks none.
    """
    from sparklog.console.app import ConsoleApp  # noqa: PLC0415 - needs the extra

    named = frozenset(name.lower() for name in (args.host, *args.allow_host))
    bound_to_all = args.host in {"0.0.0.0", "::"} and not args.allow_host  # noqa: S104 - compared
    return ConsoleApp(
        _sessions(args, counters or {}, pages, brokers),
        version=metadata.version("sparklog"),
        secure=args.https_cookies,
        hosts=frozenset() if bound_to_all else LOOPBACK_NAMES | named,
    )


def _check(args: Arguments) -> None:
    has_users = args.login or args.oidc_issuer is not None
    if not (has_users or args.read_only or is_loopback(args.host)):
        raise UsageError(
            "beyond loopback everyone could change the log; add --login, --oidc-issuer or "
            "--read-only"
        )
    if args.role and not has_users:
        raise UsageError("--role goes with --login or --oidc-issuer")
    if args.login and args.oidc_issuer is not None:
        raise UsageError("--login and --oidc-issuer are two kinds of users; choose one")
    if (args.oidc_issuer is None) != (args.oidc_client_id is None):
        raise UsageError("--oidc-issuer and --oidc-client-id go together")
    if args.oidc_issuer is not None and args.public_url is None and args.port == 0:
        raise UsageError("--oidc-issuer needs --public-url or a port that stays the same")
    if args.role and bootstrap_of(args) is not None:
        raise UsageError("--role is for a root; at brokers ACLs decide")
    if bootstrap_of(args) is None and root_of(args) is None:
        raise UsageError("which log? give --root URL or --bootstrap-server HOST:PORT")


def _sessions(
    args: Arguments,
    counters: CounterSources,
    pages: Callable[[], Mapping[str, str]] | None,
    brokers: Mapping[str, str] | None,
) -> ConsoleSessions:
    from sparklog.console.bill import Bill, PriceList, read_prices  # noqa: PLC0415 - needs the extra
    from sparklog.console.broker_view import BrokerView  # noqa: PLC0415 - needs the extra
    from sparklog.console.resources import ConsoleRole  # noqa: PLC0415 - likewise
    from sparklog.console.root_view import RootView  # noqa: PLC0415 - likewise
    from sparklog.console.sessions import (  # noqa: PLC0415 - likewise
        BrokerLogins,
        ConsoleSessions,
        ConsoleUser,
        ProviderLogins,
        RootLogins,
        broker_user,
    )

    most = ConsoleRole.VIEWER if args.read_only else ConsoleRole.ADMIN
    bootstrap, settings = bootstrap_of(args), client_settings_of(args)
    prices = PriceList() if args.prices is None else read_prices(args.prices)
    if args.metrics_page:
        pages = {page: page_url(page) for page in args.metrics_page}.copy
    if bootstrap is not None:
        bill = _watching(None if pages is None else Bill(prices, {}, pages=pages))
        if args.login:
            return ConsoleSessions(None, BrokerLogins(bootstrap, settings, most, bill))
        if args.oidc_issuer is not None:
            user_of = partial(broker_user, bootstrap, settings, most, bill)
            return ConsoleSessions(None, ProviderLogins(_provider(args), user_of))
        return ConsoleSessions(
            ConsoleUser("", most, BrokerView(bootstrap, settings, bill=bill)), None
        )
    view = RootView(root_of(args) or "", prices=prices, counters=counters, pages=pages)
    _watching(view.bill)
    roles = {user: min(most, role) for user, role in _roles(args.role).items()}
    if args.login:
        return ConsoleSessions(None, RootLogins(view, roles, settings=brokers))
    if args.oidc_issuer is not None:
        return ConsoleSessions(
            None,
            ProviderLogins(
                _provider(args),
                lambda found: ConsoleUser(
                    found.name, roles.get(found.name, ConsoleRole.VIEWER), view
                ),
            ),
        )
    common = view if brokers is None else view.with_brokers(brokers)
    return ConsoleSessions(ConsoleUser("", most, common), None)


def _watching(bill: Bill | None) -> Bill | None:
    """Begin to look at the brokers' pages, so that an hour is known when a reader comes."""
    if bill is not None and bill.activity is not None:
        bill.activity.start()
    return bill


def _provider(args: Arguments) -> OidcLogins:
    from sparklog.console.oidc import OidcLogins, OidcSettings  # noqa: PLC0415 - likewise

    secret = ""
    if args.oidc_client_secret_file is not None:
        secret = read_bounded(args.oidc_client_secret_file, "--oidc-client-secret-file").strip()
    host = f"[{args.host}]" if ":" in args.host else args.host
    public = args.public_url or f"http://{host}:{args.port}"
    return OidcLogins(
        OidcSettings(
            args.oidc_issuer, args.oidc_client_id, f"{public.rstrip('/')}/login/callback", secret,
            args.oidc_scope, args.oidc_name_claim,
        )
    )  # fmt: skip


def _roles(given: Sequence[str]) -> dict[str, ConsoleRole]:
    from sparklog.console.resources import ConsoleRole  # noqa: PLC0415 - needs the extra

    found = {}
    for user, word in key_values(given, "--role").items():
        if word not in ROLES:
            raise UsageError(f"--role knows no role {word!r}; {suggestion(word, ROLES)}")
        found[user] = ConsoleRole[word.upper()]
    return found


def _server(app: ConsoleApp) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - needs the extra

    config = uvicorn.Config(
        app.starlette, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=2, h11_max_incomplete_event_size=32 * 1024,
    )  # fmt: skip
    server = uvicorn.Server(config)
    app.is_stopping = lambda: server.should_exit
    return server
