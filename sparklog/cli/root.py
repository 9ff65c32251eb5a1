"""Selection of a command's log: a root, or brokers. No other module decides it.

A root (a folder or a bucket) is opened here; otherwise brokers serve the log. Commands that work
with both take an `Administered` and never ask which.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparklog.cli.administered import Administered, RootLog
from sparklog.cli.output import say
from sparklog.cli.usage import Arguments, CommandParser, UsageError
from sparklog.cluster.image import Topic
from sparklog.cluster.open import Log
from sparklog.log.layout import topic_of_key
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store
from sparklog.store.settings import StoreSettings

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

ROOT_VARIABLE = "SPARKLOG_ROOT"
BOOTSTRAP_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
STORE_SETTINGS = StoreSettings(retry_deadline_s=10.0)
"""A person waits for the result, and can repeat the command; a job should try for longer."""


def add_root_options(parser: CommandParser) -> None:
    """Declare the options of a command that reads the storage."""
    parser.add_argument(
        "--root",
        metavar="URL",
        help=f"where the log is: a folder or s3://bucket/prefix (default ${ROOT_VARIABLE})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def add_broker_options(parser: CommandParser) -> None:
    """Declare the options of a command that needs brokers."""
    _add_bootstrap_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def add_log_options(parser: CommandParser) -> None:
    """Declare the options of a command that works with a root and with brokers."""
    _add_bootstrap_option(parser)
    add_root_options(parser)


def _add_bootstrap_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="brokers to ask, with commas between them, instead of the storage "
        f"(default ${BOOTSTRAP_VARIABLE})",
    )


def root_of(args: Arguments) -> str | None:
    """Return the given root, by option or environment."""
    return _given(getattr(args, "root", None), ROOT_VARIABLE)


def bootstrap_of(args: Arguments) -> str | None:
    """Return the brokers, or None to use the root.

    An option overrides the environment.

    Raises:
        UsageError: both a root and brokers are given.
    """
    option = getattr(args, "bootstrap_server", None)
    root = getattr(args, "root", None)
    if option and root:
        raise UsageError("--root and --bootstrap-server are two ways to a log; give one of them")
    if root:
        return None
    bootstrap = _given(option, BOOTSTRAP_VARIABLE)
    if bootstrap and not option and hasattr(args, "root") and root_of(args):
        raise UsageError(
            f"{ROOT_VARIABLE} and {BOOTSTRAP_VARIABLE} are both set; "
            "say which with --root or --bootstrap-server"
        )
    return bootstrap


@contextmanager
def opened_log(args: Arguments) -> Iterator[Log]:
    """Open the log under the root that the options name, and close it afterwards.

    Raises:
        UsageError: no root. InvalidConfig: not a root. Unavailable: the store does not respond.
    """
    root = root_of(args)
    if root is None:
        where = f"give --root URL or set {ROOT_VARIABLE}"
        if hasattr(args, "bootstrap_server"):
            where = f"give --root URL (or set {ROOT_VARIABLE}) or --bootstrap-server HOST:PORT"
        raise UsageError(f"which log? {where}")
    with Log(opened_store(root)) as log:
        yield log


@contextmanager
def connected(args: Arguments, timeout_s: float | None = None) -> Iterator[Admin]:
    """Connect to the brokers that the options name; `timeout_s` None is the client's default.

    Raises:
        UsageError: no brokers are named. InvalidRequest: not host:port.
        Unavailable: no broker responds there.
    """
    bootstrap = bootstrap_of(args)
    if bootstrap is None:
        raise UsageError(
            f"which brokers? give --bootstrap-server HOST:PORT or set {BOOTSTRAP_VARIABLE}"
        )
    from sparklog.client.addresses import TIMEOUT_S  # noqa: PLC0415 - a root needs no Kafka client
    from sparklog.client.admin import Admin  # noqa: PLC0415 - likewise

    with Admin(bootstrap, timeout_s=TIMEOUT_S if timeout_s is None else timeout_s) as admin:
        yield admin


@contextmanager
def administered(args: Arguments) -> Iterator[Administered]:
    """Open the root or connect to the brokers that the options name.

    Raises:
        UsageError, InvalidConfig, InvalidRequest, Unavailable: as `opened_log` and `connected`.
    """
    if bootstrap_of(args) is not None:
        with connected(args) as admin:
            yield admin
    else:
        with opened_log(args) as log:
            yield RootLog(log)


def warn_if_led(topic: Topic) -> None:
    """Print a note that the storage lacks the newest records of a topic with leaders."""
    if any(state.leader >= 0 for state in topic.partition_states):
        say(
            "note: brokers lead this topic, and hold its newest records until they are flushed; "
            f"--bootstrap-server shows them, too. topic={topic.name}"
        )


def opened_store(root: str) -> ObjectStore:
    """Open the store under `root`.

    Raises:
        InvalidConfig: not a root.
    """
    return open_store(root, STORE_SETTINGS, label_of=topic_of_key)


def _given(option: str | None, variable: str) -> str | None:
    value = option if option is not None else os.environ.get(variable)  # noqa: TID251 - the edge
    return value or None
