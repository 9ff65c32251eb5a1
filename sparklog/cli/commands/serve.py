"""`sparklog serve`: brokers as tasks of a Spark application, by default one on this machine.

Equivalent to `spark-submit jobs/serve.py`, without spark-submit. It can serve the web console too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, cast

from sparklog.broker.network.listeners import PORT_MAX
from sparklog.cli.arguments import Arguments, CommandParser, UsageError, whole_number
from sparklog.cli.output import Output, say
from sparklog.core.counters import Snapshot
from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import EXAMPLES, add_serve_options, serve_job
from sparklog.spark.serve.job import ServeJob
from sparklog.spark.serve.serve import serve_with
from sparklog.spark.serve.state import MetricsPages
from sparklog.spark.serve.task_broker import run as run_broker

_PASSWORD_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_TRUSTSTORE: Final = "ssl.truststore.location"
CONSOLE: str = "sparklog.console.command"
"""Loaded by name: the console imports the command line."""


class ServesConsole(Protocol):
    """The part of the console's command that this one uses."""

    def served(
        self,
        root: str,
        port: int,
        *,
        login: bool,
        pages: Callable[[], Mapping[str, str]],
        counters: Mapping[str, Callable[[], Snapshot]],
        brokers: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[str]:
        """Serve a root on loopback, and lend the address."""


def configure(parser: CommandParser) -> None:
    """Declare the command's options."""
    add_serve_options(parser)
    parser.add_argument(
        "--console-port", type=whole_number, metavar="PORT",
        help="serve the web console of the root on loopback too, 0 on a free port; with SASL or an "
        "authorizer users of the log log in and view (default: no console)",
    )  # fmt: skip
    parser.epilog = EXAMPLES


def run(args: Arguments, output: Output) -> int:
    """Run brokers until the process gets a signal to end; the job itself prints."""
    if args.console_port is not None and args.console_port > PORT_MAX:
        raise UsageError(f"--console-port is at most {PORT_MAX}")
    try:
        job = serve_job(args)
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    pages = MetricsPages()
    console = None if args.console_port is None else pages
    with _console(args.console_port, job, pages) as url:
        if url is not None:
            say(f"The console is at {url}")
        return run_job("sparklog serve", lambda _: job, serve_with(run_broker, console), [])


def _console(
    port: int | None, job: ServeJob, pages: MetricsPages
) -> AbstractContextManager[str | None]:
    """Serve the console, whose bill has the brokers' requests and those of this process."""
    if port is None:
        return nullcontext()
    scheme = "https" if job.configs.get("metrics.listener.name") else "http"
    counters: dict[str, Callable[[], Snapshot]] = {}
    if job.schedule is not None or job.connect_port is not None:
        counters["Spark's queries"] = pages.requests_of_queries
    if job.schedule is not None:
        from sparklog.spark.access.log_access import shared_log  # noqa: PLC0415 - loads pyarrow

        counters["this application"] = shared_log(job.root).requests
    command = cast("ServesConsole", importlib.import_module(CONSOLE))
    return command.served(
        job.root, port, login=has_users(job), counters=counters,
        pages=lambda: {n: f"{scheme}://{page}" for n, page in pages.by_broker.items()},
        brokers=client_settings(job),
    )  # fmt: skip


def client_settings(job: ServeJob) -> dict[str, str]:
    """Return a client's settings for the job's first listener, without a login."""
    settings = {"security.protocol": job.protocol}
    enabled = job.configs.get("sasl.enabled.mechanisms", "").split(",")
    mechanisms = [one for one in _PASSWORD_MECHANISMS if one in enabled]
    if mechanisms:
        settings["sasl.mechanism"] = mechanisms[0]
    if _TRUSTSTORE in job.configs:
        settings[_TRUSTSTORE] = job.configs[_TRUSTSTORE]
    return settings


def has_users(job: ServeJob) -> bool:
    """Return True if brokers ask who a client is, or decide what it may do."""
    protocols = [job.protocol, *(one.protocol for one in job.more_listeners)]
    asks = any(one.startswith("SASL") for one in protocols)
    return asks or "authorizer.class.name" in job.configs
