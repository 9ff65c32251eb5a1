"""Selection of a command's log: a root, or brokers. No other module decides it.

A root (a folder or a bucket) is opened here; otherwise brokers serve the log. Commands that work
with both take an `AdminTarget` and never ask which.

`AdminTarget` puts a log under a root, or a cluster of brokers, behind one interface.

`AdminTarget` has the methods of `sparklog.client.admin.Admin`, which is one implementation.
`RootLog` is the other: it uses the storage, without brokers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import say
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.errors import SparklogError
from sparklog.core.quotas import Quotas
from sparklog.core.types import TopicPartition
from sparklog.log.layout import topic_of_key
from sparklog.security.acls import AclBinding, AclFilter
from sparklog.security.sasl.credentials import ITERATIONS_MIN, ScramMechanism
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store
from sparklog.store.settings import StoreSettings

if TYPE_CHECKING:
    from sparklog.cli.root_log import Assignment
    from sparklog.client.admin import Admin
    from sparklog.client.values import (
        ConfigResource,
        ConfigValue,
        ListedOffset,
        ServingBroker,
    )


class AdminTarget(Protocol):
    """Topics, their settings and their offsets, on a root or in a cluster.

    See `client.admin.Admin`.
    """

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic, by name."""

    def topic(self, name: str) -> Topic:
        """Return one topic. Raises UnknownTopicOrPartition."""

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> Topic:
        """Create a topic; omitted values are the defaults."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""

    def add_partitions(self, name: str, total: int, assignment: Assignment | None = None) -> None:
        """Grow a topic to `total` partitions."""

    def configs(
        self, kind: ConfigResource, names: Sequence[str]
    ) -> Mapping[str, list[ConfigValue]]:
        """Return all settings, defaults included."""

    def alter_configs(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        *,
        kind: ConfigResource = ...,
    ) -> None:
        """Set some settings, and reset others to their defaults."""

    def groups_with_configs(self) -> list[str]:
        """Return the groups that have settings of their own, sorted."""

    def client_quotas(self) -> Quotas:
        """Return the configured quotas of clients and users."""

    def alter_client_quotas(
        self, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Set some quotas of a client or user and remove others."""

    def users(self) -> Mapping[str, Mapping[ScramMechanism, int]]:
        """Return the users: for each name, the iterations of its credentials by mechanism."""

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Create a user or change a password. Raises UnacceptableCredential."""

    def remove_password(
        self, user: str, mechanisms: Collection[ScramMechanism] | None = None
    ) -> None:
        """Delete a user's credentials, by default all. Raises ResourceNotFound."""

    def acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter matches, by default all."""

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs; those that exist stay as they are."""

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that a filter matches, and return them."""

    def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset | SparklogError]:
        """Return an offset per partition: EARLIEST, LATEST, MAX_TIMESTAMP or by time in ms."""

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | SparklogError]:
        """Delete the records before an offset of each partition; return the new log starts."""

    def brokers(self) -> list[ServingBroker]:
        """Return the live brokers, by id."""


ROOT_VARIABLE = "SPARKLOG_ROOT"
BOOTSTRAP_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
CONFIG_VARIABLE = "SPARKLOG_COMMAND_CONFIG"
STORE_SETTINGS = StoreSettings(retry_deadline_s=10.0)
"""A person waits for the result, and can repeat the command; a job should try for longer."""


class _OtherLog(argparse.Action):
    """The option for the other kind of log, which the command rejects with a reason."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        """Print the usage error, and stop."""
        parser.error(str(self.const))


def add_root_options(parser: CommandParser) -> None:
    """Declare the options of a command that reads the storage, and rejects brokers."""
    _add_root_option(parser)
    _reject(
        parser,
        "--bootstrap-server",
        "this command reads the storage, not through brokers: "
        f"give --root URL (or set {ROOT_VARIABLE}) instead of --bootstrap-server",
    )
    _add_json_option(parser)


def add_broker_options(parser: CommandParser) -> None:
    """Declare the options of a command that needs brokers, and rejects a root."""
    _add_bootstrap_option(parser)
    _reject(
        parser,
        "--root",
        "this command asks brokers, not the storage: "
        f"give --bootstrap-server HOST:PORT (or set {BOOTSTRAP_VARIABLE}) instead of --root",
    )
    _add_json_option(parser)


def add_log_options(parser: CommandParser) -> None:
    """Declare the options of a command that works with a root and with brokers."""
    _add_bootstrap_option(parser)
    _add_root_option(parser)
    _add_json_option(parser)


def _add_root_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--root",
        metavar="URL",
        help=f"where the log is: a folder or s3://bucket/prefix (default ${ROOT_VARIABLE})",
    )


def _add_json_option(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def _reject(parser: CommandParser, option: str, reason: str) -> None:
    parser.add_argument(
        option,
        action=_OtherLog,
        nargs="?",
        const=reason,
        default=argparse.SUPPRESS,  # `hasattr` shows which options a command has
        help=argparse.SUPPRESS,
    )


def _add_bootstrap_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="brokers to ask, with commas between them, instead of the storage "
        f"(default ${BOOTSTRAP_VARIABLE})",
    )
    add_client_options(parser)


def add_client_options(parser: CommandParser) -> None:
    """Declare the option for TLS and SASL of a command that connects to brokers."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="properties file with security.protocol, sasl.* and ssl.* for the brokers "
        f"(default ${CONFIG_VARIABLE})",
    )


def client_settings_of(args: Arguments) -> dict[str, str]:
    """Return the settings of TLS and SASL, by option or environment; empty without a file.

    Raises:
        InvalidConfig: the file cannot be read, or has an unknown security setting.
    """
    given: Path | None = getattr(args, "command_config", None)
    option = "--command-config" if given is not None else CONFIG_VARIABLE
    path = _given(None if given is None else str(given), CONFIG_VARIABLE)
    if path is None:
        return {}
    from sparklog.client.security import read_client_file  # noqa: PLC0415 - a root needs no client

    security, others = read_client_file(Path(path), option)
    if unused := sorted(others.keys() - {"bootstrap.servers"}):
        say(f"note: only security.*, sasl.* and ssl.* act; others have no effect: {unused}")
    return security.given


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


def program_of(args: Arguments) -> str:
    """Return the command's name, such as `sparklog topics`."""
    return getattr(args, "program", "sparklog")


@contextmanager
def opened_log(args: Arguments) -> Iterator[Log]:
    """Open the log under the root that the options name, and close it afterwards.

    The command's requests are on the bill, see `usage_reports`.

    Raises:
        UsageError: no root. InvalidConfig: not a root. Unavailable: the store does not respond.
    """
    root = root_of(args)
    if root is None:
        where = f"give --root URL or set {ROOT_VARIABLE}"
        if hasattr(args, "bootstrap_server"):
            where = f"give --root URL (or set {ROOT_VARIABLE}) or --bootstrap-server HOST:PORT"
        raise UsageError(f"which log? {where}")
    with Log(opened_store(root)) as log, reported_usage(log, program_of(args)):
        yield log
        sys.stdout.flush()  # a reader of the output need not wait for the report


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

    settings = client_settings_of(args)
    chosen_s = TIMEOUT_S if timeout_s is None else timeout_s
    with Admin(bootstrap, settings=settings, timeout_s=chosen_s) as admin:
        yield admin


@contextmanager
def administered(args: Arguments) -> Iterator[AdminTarget]:
    """Open the root or connect to the brokers that the options name.

    Raises:
        UsageError, InvalidConfig, InvalidRequest, Unavailable: as `opened_log` and `connected`.
    """
    if bootstrap_of(args) is not None:
        with connected(args) as admin:
            yield admin
    else:
        from sparklog.cli.root_log import RootLog  # noqa: PLC0415 - queries need none

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
