"""`sparklog topics`: kafka-topics, with brokers or without.

The command prints descriptions of a topic as Kafka's lines or as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    add_actions,
    check_needed,
    check_options,
    counting_number,
    key_values,
)
from sparklog.cli.console.topic_filter import matching_topics
from sparklog.cli.output import Output, say
from sparklog.cli.target import AdminTarget, add_log_options, administered, bootstrap_of, root_of
from sparklog.client.values import ConfigResource
from sparklog.cluster.metadata.image import PartitionState, Topic
from sparklog.core.errors import TopicAlreadyExists, UnknownTopicOrPartition


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Conditions for the shown partitions; without any, all are shown."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    def __bool__(self) -> bool:
        """Return True if there is any condition."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def takes(self, state: PartitionState, min_isr: int, live: frozenset[int] | None) -> bool:
        """Return True if a partition meets one of the conditions.

        `min_isr` is the topic's `min.insync.replicas`, `live` the live brokers.
        """
        led = state.leader >= 0 and (live is None or state.leader in live)
        in_sync = len(state.isr)
        return (
            (self.under_replicated and in_sync < len(wanted_replicas(state)))
            or (self.unavailable and not led)
            or (self.under_min_isr and in_sync < min_isr)
            or (self.at_min_isr and in_sync == min_isr)
        )


def wanted_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the assigned replicas; during a reassignment without those to be removed."""
    return tuple(r for r in state.replicas if r not in state.removing_replicas)


def topic_document(topic: Topic, numbers: Iterable[int] | None = None) -> dict[str, Any]:
    """Return a topic as JSON values, with some or all of its partitions."""
    shown = range(topic.partitions) if numbers is None else numbers
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partitionCount": topic.partitions,
        "replicationFactor": _replication_factor(topic),
        "configs": dict(topic.configs),
        "partitions": [_partition_document(n, topic.partition_states[n]) for n in shown],
    }


def _partition_document(number: int, state: PartitionState) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partition": number,
        "leader": None if state.leader < 0 else state.leader,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
    }
    if state.adding_replicas or state.removing_replicas:
        document["addingReplicas"] = list(state.adding_replicas)
        document["removingReplicas"] = list(state.removing_replicas)
    return document


def topic_line(topic: Topic) -> str:
    """Return the first line of a topic's description."""
    configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {topic.partitions}"
        f"\tReplicationFactor: {_replication_factor(topic)}\tConfigs: {configs}"
    )


def partition_line(topic: str, number: int, state: PartitionState) -> str:
    """Return the line that describes one partition."""
    leader = "none" if state.leader < 0 else str(state.leader)
    line = (
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}"
        f"\tReplicas: {_ids(state.replicas)}\tIsr: {_ids(state.isr)}"
    )
    if state.adding_replicas or state.removing_replicas:
        line += f"\tAdding Replicas: {_ids(state.adding_replicas)}"
        line += f"\tRemoving Replicas: {_ids(state.removing_replicas)}"
    return line + "\tElr: N/A\tLastKnownElr: N/A"


def _replication_factor(topic: Topic) -> int:
    # A partition without replicas is in the storage.
    return max([1, *(len(state.replicas) for state in topic.partition_states[:1])])


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


_HELP = {
    "create": "create a topic",
    "list": "list the topics",
    "describe": "show partitions and settings",
    "alter": "add partitions or change settings",
    "delete": "delete topics and all their records",
}
_ACTIONS_OF_OPTION = {
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "config": ("create", "alter"),
    "delete_config": ("alter",),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "exclude_internal": ("list", "describe"),
    "topics_with_overrides": ("describe",),
    "topic_id": ("describe",),
    "replica_assignment": ("create", "alter"),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
}
"""Actions of each option; with any other the option would have no effect, so it is an error."""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(parser, _HELP)
    parser.add_argument(
        "--topic", help="the topic; except for --create also a regular expression for names"
    )
    parser.add_argument("--topic-id", metavar="ID", help="the topic with this id")
    parser.add_argument(
        "--partitions", type=counting_number, metavar="N", help="how many it has, or shall have"
    )
    parser.add_argument(
        "--replication-factor",
        type=counting_number,
        metavar="N",
        help="brokers that hold each partition while brokers serve it; the storage always does",
    )
    parser.add_argument(
        "--replica-assignment",
        metavar="IDS,...",
        help="brokers of each partition, such as 1:2,2:3 for two partitions; the first one leads",
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting to set"
    )
    parser.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="a setting to reset"
    )
    parser.add_argument("--if-exists", action="store_true", help="no error without such a topic")
    parser.add_argument("--if-not-exists", action="store_true", help="no error if it exists")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out Kafka's own")
    parser.add_argument(
        "--topics-with-overrides", action="store_true", help="only topics that have settings"
    )
    for option, help_text in (
        ("under-replicated", "only partitions with a replica that is not in sync"),
        ("unavailable", "only partitions that nobody leads"),
        ("under-min-isr", "only partitions with fewer in sync than min.insync.replicas"),
        ("at-min-isr", "only partitions with just min.insync.replicas in sync"),
    ):
        parser.add_argument(f"--{option}-partitions", action="store_true", help=help_text)
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the requested action."""
    _check(args)
    with administered(args) as log:
        _ACTIONS[args.action](log, args, output)
    return 0


def _check(args: Arguments) -> None:
    check_options(args, _ACTIONS_OF_OPTION)
    if args.action in ("create", "alter", "delete"):
        check_needed(args, ("topic",))
    if args.action == "alter" and not (args.partitions or args.config or args.delete_config):
        raise UsageError("--alter needs --partitions, --config or --delete-config")
    if args.replica_assignment is None:
        return
    if bootstrap_of(args) is None:
        raise UsageError("--replica-assignment needs --bootstrap-server: brokers hold replicas")
    if args.action == "create" and (args.partitions or args.replication_factor):
        raise UsageError(
            "--replica-assignment says how many partitions and replicas there are; leave out "
            "--partitions and --replication-factor"
        )
    if args.action == "alter" and not args.partitions:
        raise UsageError("--replica-assignment needs --partitions with --alter")


def _create(log: AdminTarget, args: Arguments, output: Output) -> None:
    configs = key_values(args.config, "--config")
    try:
        topic = log.create_topic(
            args.topic, args.partitions, configs, args.replication_factor, _assignment(args)
        )
    except TopicAlreadyExists:
        if not args.if_not_exists or args.topic not in log.topic_names():
            raise
        output.document({**topic_document(log.topic(args.topic)), "created": False})
        return
    output.put(f"Created topic {topic.name}.", {**topic_document(topic), "created": True})


def _list(log: AdminTarget, args: Arguments, output: Output) -> None:
    exclude_internal = args.exclude_internal
    if not output.as_json:
        names = log.topic_names()
        if not names:
            where = bootstrap_of(args) or root_of(args)
            say(f"note: there is no topic here yet; is it the right place? place={where}")
        for name in matching_topics(names, args.topic, exclude_internal=exclude_internal):
            output.line(name)
        return
    topics = log.topics()
    for name in matching_topics(topics, args.topic, exclude_internal=exclude_internal):
        topic = topics[name]
        output.document(
            {"topic": name, "topicId": topic.topic_id, "partitionCount": topic.partitions}
        )


def _describe(log: AdminTarget, args: Arguments, output: Output) -> None:
    topics = log.topics()
    if args.topic_id is not None:
        names = [name for name, topic in topics.items() if topic.topic_id == args.topic_id]
        _require(names, f"topic id {args.topic_id}", args)
    else:
        names = matching_topics(topics, args.topic, exclude_internal=args.exclude_internal)
        if args.topic is not None:
            _require(names, args.topic, args)
    wanted = PartitionFilter(
        args.under_replicated_partitions,
        args.unavailable_partitions,
        args.under_min_isr_partitions,
        args.at_min_isr_partitions,
    )
    if wanted:
        _describe_partitions(log, [topics[name] for name in names], wanted, output)
        return
    for name in names:
        topic = topics[name]
        if args.topics_with_overrides and not topic.configs:
            continue
        output.document(topic_document(topic))
        output.line(topic_line(topic))
        if not args.topics_with_overrides:
            for number, state in enumerate(topic.partition_states):
                output.line(partition_line(topic.name, number, state))


def _describe_partitions(
    log: AdminTarget, topics: Iterable[Topic], wanted: PartitionFilter, output: Output
) -> None:
    """Print the partitions that `wanted` accepts, without a line for their topic, as Kafka does."""
    topics = list(topics)
    settings = log.configs(ConfigResource.TOPIC, [topic.name for topic in topics])
    live = frozenset(broker.broker_id for broker in log.brokers())
    for topic in topics:
        values = {setting.name: setting.value for setting in settings[topic.name]}
        min_isr = int(values.get("min.insync.replicas") or 1)
        shown = [
            number
            for number, state in enumerate(topic.partition_states)
            if wanted.takes(state, min_isr, live)
        ]
        if shown:
            output.document(topic_document(topic, shown))
        for number in shown:
            output.line(partition_line(topic.name, number, topic.partition_states[number]))


def _alter(log: AdminTarget, args: Arguments, output: Output) -> None:
    configs = key_values(args.config, "--config")
    for name in _chosen(log, args):
        if configs or args.delete_config:
            log.alter_configs(name, configs, args.delete_config)
            output.line(f"Updated config for topic {name}.")
        if args.partitions is not None:
            placed = _assignment(args)
            if placed is not None:
                placed = placed[log.topic(name).partitions :]
            log.add_partitions(name, args.partitions, placed)
        if output.as_json:
            output.document(topic_document(log.topic(name)))


def _delete(log: AdminTarget, args: Arguments, output: Output) -> None:
    for name in _chosen(log, args):
        log.delete_topic(name)
        output.document({"topic": name, "deleted": True})


def _assignment(args: Arguments) -> list[list[int]] | None:
    """Return the replicas of each partition from `1:2,2:3`."""
    if args.replica_assignment is None:
        return None
    placed = [word.strip().split(":") for word in args.replica_assignment.split(",")]
    if not all(broker.isascii() and broker.isdigit() for brokers in placed for broker in brokers):
        raise UsageError(
            "--replica-assignment takes the brokers of each partition, such as 1:2,2:3, not "
            f"{args.replica_assignment!r}"
        )
    return [[int(broker) for broker in brokers] for brokers in placed]


def _chosen(log: AdminTarget, args: Arguments) -> list[str]:
    names = matching_topics(log.topic_names(), args.topic)
    _require(names, args.topic, args)
    return names


def _require(names: list[str], wanted: str, args: Arguments) -> None:
    if not names and not args.if_exists:
        raise UnknownTopicOrPartition(
            f"no topic matches; `sparklog topics --list` lists them. topic={wanted}"
        )


_ACTIONS = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
}
