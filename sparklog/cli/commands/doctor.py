"""`sparklog doctor`: checks this machine and a root, and prints what is wrong and what to do.

Each check is a line `ok`, `warning` or `failure`. The exit code is 1 if a check failed, else 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.doctor import machine
from sparklog.cli.doctor.machine import Finding, Level
from sparklog.cli.doctor.root import root
from sparklog.cli.output import Output
from sparklog.cli.target import (
    add_client_options,
    add_root_options,
    client_settings_of,
    root_of,
)

LOOPBACK = "127.0.0.1"
KAFKAS_PORT = 9092

_EPILOG = """
Run it as the user and on the machine of the brokers. Without a root it checks the machine alone.
The checks of a root create a few objects and delete them. Values of credentials are never printed.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_root_options(parser)
    add_client_options(parser)
    parser.add_argument(
        "--listen-host",
        default=LOOPBACK,
        metavar="HOST",
        help=f"where a broker would listen; '' is every interface (default {LOOPBACK})",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=KAFKAS_PORT,
        help=f"where a broker would listen (default {KAFKAS_PORT})",
    )
    parser.add_argument(
        "--advertised-host",
        metavar="HOST",
        help="the host that clients would be given (default: the host to listen on)",
    )
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Print each finding, and return 1 if one is a failure."""
    failed = False
    for finding in _findings(args, os.environ):  # noqa: TID251 - the edge
        text = " ".join(finding.text.split())
        output.put(
            f"{finding.level.value:<8} {finding.check}: {text}",
            {"check": finding.check, "level": finding.level.value, "text": text},
        )
        output.flush()
        failed |= finding.level is Level.FAILURE
    return int(failed)


def _findings(args: Arguments, environment: Mapping[str, str]) -> Iterator[Finding]:
    yield machine.python()
    yield machine.java(environment)
    yield from machine.packages()
    yield machine.kernels()
    yield machine.file_limit()
    yield machine.listener(args.listen_host, args.port)
    host = args.listen_host if args.advertised_host is None else args.advertised_host
    if host != LOOPBACK:
        yield machine.advertised(host)
    url = root_of(args)
    if url is not None:
        yield from root(url, environment, client_settings_of(args))
