"""Selection of a command's log: a root, or brokers. No other module decides it.

A root (a folder or a bucket) is opened here; otherwise brokers serve the log. Commands that work
with both take an `AdminTarget` and never ask which.

`AdminTarget` puts a log under a root, or a cluster of brokers, behind one interface.

`AdminTarget` has the methods of `sparklog.client.admin.Admin`, which is one implementation.
`RootLog` is the other: it uses the storage, without brokers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import say
from sparklog.client.values import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ConfigResource,
    ConfigValue,
    ListedOffset,
    ServingBroker,
)
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.changes import check_may_delete_records
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.config.describe import DescribedConfig, described_defaults, described_topic
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.quotas import Quotas
from sparklog.core.types import NO_TIMESTAMP_MS, TopicPartition
from sparklog.log.layout import topic_of_key
from sparklog.log.partition.offset_lookup import TimedOffset
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store
from sparklog.store.settings import StoreSettings

if TYPE_CHECKING:
    from sparklog.client.admin import Admin


LOOKED_AT_ONCE = 8
NO_OFFSET = -1
_ASK_BROKERS = "settings of brokers and groups are asked of the brokers; use --bootstrap-server"
NOWHERE = ListedOffset(NO_OFFSET, NO_TIMESTAMP_MS)

Assignment = Sequence[Sequence[int]]
Result = TypeVar("Result")


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
        kind: ConfigResource = ConfigResource.TOPIC,
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


class RootLog:
    """A log under a root, administered without brokers, also for topics that have leaders."""

    def __init__(self, log: Log) -> None:
        """Administer `log`."""
        self.log = log

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.log.topics())

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic, by name."""
        return self.log.topics()

    def topic(self, name: str) -> Topic:
        """Return one topic. Raises UnknownTopicOrPartition."""
        return self.log.topic(name)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> Topic:
        """Create a topic. Raises as `Log.create_topic`; InvalidRequest for an assignment."""
        _refuse(assignment)
        return self.log.create_topic(
            name, 1 if partitions is None else partitions, configs, replication_factor
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        self.log.delete_topic(name)

    def add_partitions(self, name: str, total: int, assignment: Assignment | None = None) -> None:
        """Grow a topic. Raises as `Log.add_partitions`; InvalidRequest for an assignment."""
        _refuse(assignment)
        self.log.add_partitions(name, total)

    def configs(
        self, kind: ConfigResource, names: Sequence[str]
    ) -> Mapping[str, list[ConfigValue]]:
        """Return all settings of topics, or the defaults of all topics.

        Raises:
            UnknownTopicOrPartition: no such topic. InvalidRequest: settings of one broker.
        """
        if kind is not ConfigResource.TOPIC:
            _every_broker(kind, names)
            described = described_defaults(self.log.topic_defaults(), set_only=True)
            return {EVERY_BROKER: [_config_value(one) for one in described]}
        topics = self.log.topics()
        found = [topics.get(name) or self.log.topic(name) for name in names]
        return {
            topic.name: [
                _config_value(one) for one in described_topic(topic.configs, topic.defaults)
            ]
            for topic in found
        }

    def alter_configs(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        *,
        kind: ConfigResource = ConfigResource.TOPIC,
    ) -> None:
        """Change settings of a topic, or the defaults of all topics.

        Raises:
            As `Log.alter_configs`. InvalidRequest: settings of one broker.
        """
        if kind is not ConfigResource.TOPIC:
            _every_broker(kind, [name])
            self.log.alter_topic_defaults(values, remove)
        else:
            self.log.alter_configs(name, values, remove)

    def groups_with_configs(self) -> list[str]:
        """Raise InvalidRequest: only brokers have groups."""
        raise InvalidRequest(_ASK_BROKERS)

    def client_quotas(self) -> Quotas:
        """Return the configured quotas of clients and users."""
        return self.log.client_quotas()

    def alter_client_quotas(
        self, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Change quotas; brokers apply them a moment later. Raises as `Log`'s."""
        self.log.alter_client_quotas(parts, changes)

    def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset | SparklogError]:
        """Return an offset per partition; with a leader, up to the flushed end."""
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            found = pool.map(lambda item: _or_error(partial(self._offset, *item)), wanted.items())
            return dict(zip(wanted, found, strict=True))

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | SparklogError]:
        """Delete the records before an offset of each partition; return the new log starts."""
        return {tp: _or_error(partial(self._deleted, tp, offset)) for tp, offset in before.items()}

    def brokers(self) -> list[ServingBroker]:
        """Return the brokers that are registered and not fenced, by id."""
        image = self.log.refresh()
        controller = image.controller.broker_id if image.controller is not None else None
        return [
            ServingBroker(b.broker_id, b.host, b.port, b.rack, b.broker_id == controller)
            for b in image.live_brokers()
        ]

    def _offset(self, tp: TopicPartition, at: int) -> ListedOffset:
        partition = self.log.partition(tp.topic, tp.partition)
        match at:
            case _ if at == LATEST:
                return ListedOffset(partition.view().end_offset, NO_TIMESTAMP_MS)
            case _ if at == EARLIEST:
                return ListedOffset(partition.readable().log_start_offset, NO_TIMESTAMP_MS)
            case _ if at == MAX_TIMESTAMP:
                return _found(partition.offset_of_max_timestamp())
        return _found(partition.offset_for_time(at))

    def _deleted(self, tp: TopicPartition, offset: int) -> int:
        check_may_delete_records(self.log.topic(tp.topic))
        return self.log.partition(tp.topic, tp.partition).delete_records(offset)


def _found(answer: TimedOffset | None) -> ListedOffset:
    return NOWHERE if answer is None else ListedOffset(answer.offset, answer.timestamp_ms)


def _or_error(look: Callable[[], Result]) -> Result | SparklogError:
    try:
        return look()
    except SparklogError as error:
        return error


def _config_value(described: DescribedConfig) -> ConfigValue:
    synonyms = tuple(
        (origin.source.name, origin.name, origin.value) for origin in described.origins
    )
    return ConfigValue(
        described.setting.name, described.value, described.source.name, False, synonyms
    )


def _every_broker(kind: ConfigResource, names: Sequence[str]) -> None:
    if kind is ConfigResource.GROUP or list(names) != [EVERY_BROKER]:
        raise InvalidRequest(_ASK_BROKERS)


def _refuse(assignment: Assignment | None) -> None:
    if assignment is not None:
        raise InvalidRequest("replicas are placed by brokers; use --bootstrap-server")


ROOT_VARIABLE = "SPARKLOG_ROOT"
BOOTSTRAP_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
CONFIG_VARIABLE = "SPARKLOG_COMMAND_CONFIG"
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
    from sparklog.client.security import read_client_file  # noqa: PLC0415 - a root needs no client

    given: Path | None = getattr(args, "command_config", None)
    option = "--command-config" if given is not None else CONFIG_VARIABLE
    path = _given(None if given is None else str(given), CONFIG_VARIABLE)
    if path is None:
        return {}
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
