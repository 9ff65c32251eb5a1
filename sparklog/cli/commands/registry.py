"""`sparklog registry`: a schema registry with Confluent's REST API, over a root or brokers."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, whole_number
from sparklog.cli.output import Output, say
from sparklog.cli.schemas import schema_log
from sparklog.cli.target import add_log_options
from sparklog.core.web_requests import LOOPBACK_NAMES, is_loopback, open_socket, url_of
from sparklog.registry.registry import SchemaRegistry

_PORT = 8081
_LOOPBACK = "127.0.0.1"
_EPILOG = """
examples:
  sparklog registry --serve --root /data/log
  sparklog registry --serve --bootstrap-server broker:9092 --host 0.0.0.0

A client is given http://HOST:8081 as schema.registry.url. Any number of registries may serve one
log. The API has no login: with --host, only who may register should reach the port.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument("--serve", action="store_true", required=True, help="serve the REST API")
    parser.add_argument("--host", default=_LOOPBACK, help=f"address to listen at ({_LOOPBACK})")
    parser.add_argument(
        "--port",
        type=whole_number,
        default=_PORT,
        help=f"port to listen at; 0 takes a free one ({_PORT})",
    )
    add_log_options(parser)
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Serve until the process gets a signal to end."""
    from sparklog.registry.http.server import (  # noqa: PLC0415 - of the extra `registry`
        check_libraries,
        serve_forever,
    )

    check_libraries()
    with schema_log(args) as log:
        registry = SchemaRegistry(log)
        subjects = registry.query(lambda state: len(state.subjects))
        listening = open_socket(args.host, args.port)
        url = url_of(args.host, listening)
        output.put(f"Schema registry at {url}", {"url": url, "subjects": subjects})
        output.flush()
        is_local = is_loopback(args.host)
        if not is_local:
            say("note: the registry has no login; whoever reaches the port may change schemas")
        serve_forever(registry, [listening], LOOPBACK_NAMES if is_local else ())
    return 0
