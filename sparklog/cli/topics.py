"""`sparklog topics`: kafka-topics without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.cli.output import Output
from sparklog.cli.root import add_root_options, opened_log
from sparklog.cli.selection import matching_topics
from sparklog.cli.usage import Arguments, CommandParser, UsageError, counting_number, key_values
from sparklog.cluster.image import Partition, Topic
from sparklog.cluster.open import Log
from sparklog.core.errors import TopicAlreadyExists, UnknownTopicOrPartition

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
}
"""Which actions an option goes with; with any other it would be ignored, so it is refused."""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, help_text in (
        ("create", "create a topic"),
        ("list", "list the topics"),
        ("describe", "show partitions and settings"),
        ("alter", "add partitions or change settings"),
        ("delete", "delete topics and all their records"),
    ):
        actions.add_argument(
            f"--{action}", dest="action", action="store_const", const=action, help=help_text
        )
    parser.add_argument(
        "--topic", help="the topic; except for --create also a regular expression for names"
    )
    parser.add_argument("--topic-id", metavar="ID", help="the topic with this id")
    parser.add_argument("--partitions", type=counting_number, metavar="N", help="their number")
    parser.add_argument(
        "--replication-factor",
        type=counting_number,
        metavar="N",
        help="brokers that hold each partition once brokers serve the log; the storage always does",
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
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the action that was asked for."""
    _check(args)
    with opened_log(args) as log:
        _ACTIONS[args.action](log, args, output)
    return 0


def _check(args: Arguments) -> None:
    for option, actions in _ACTIONS_OF_OPTION.items():
        given = getattr(args, option)
        if given not in (None, False, []) and args.action not in actions:
            raise UsageError(f"--{option.replace('_', '-')} does not go with --{args.action}")
    if args.topic is None and args.action in ("create", "alter", "delete"):
        raise UsageError(f"--{args.action} needs --topic")
    if args.action == "alter" and not (args.partitions or args.config or args.delete_config):
        raise UsageError("--alter needs --partitions, --config or --delete-config")


def _create(log: Log, args: Arguments, output: Output) -> None:
    configs = key_values(args.config, "--config")
    try:
        topic = log.create_topic(args.topic, args.partitions or 1, configs, args.replication_factor)
    except TopicAlreadyExists:
        if not args.if_not_exists or args.topic not in log.topics():
            raise
        output.document({**topic_document(log.topic(args.topic)), "created": False})
        return
    output.put(f"Created topic {topic.name}.", {**topic_document(topic), "created": True})


def _list(log: Log, args: Arguments, output: Output) -> None:
    topics = log.topics()
    for name in matching_topics(topics, args.topic, exclude_internal=args.exclude_internal):
        topic = topics[name]
        output.put(
            name,
            {"topic": name, "topicId": topic.topic_id, "partitionCount": topic.partitions},
        )


def _describe(log: Log, args: Arguments, output: Output) -> None:
    topics = log.topics()
    if args.topic_id is not None:
        names = [name for name, topic in topics.items() if topic.topic_id == args.topic_id]
        _require(names, f"topic id {args.topic_id}", args)
    else:
        names = matching_topics(topics, args.topic, exclude_internal=args.exclude_internal)
        if args.topic is not None:
            _require(names, args.topic, args)
    for name in names:
        topic = topics[name]
        if args.topics_with_overrides and not topic.configs:
            continue
        output.document(topic_document(topic))
        for line in _description(topic, with_partitions=not args.topics_with_overrides):
            output.line(line)


def _alter(log: Log, args: Arguments, output: Output) -> None:
    configs = key_values(args.config, "--config")
    for name in _chosen(log.topics(), args):
        if configs or args.delete_config:
            log.alter_configs(name, configs, args.delete_config)
            output.line(f"Updated config for topic {name}.")
        if args.partitions is not None:
            log.add_partitions(name, args.partitions)
        output.document(topic_document(log.topic(name)))


def _delete(log: Log, args: Arguments, output: Output) -> None:
    for name in _chosen(log.topics(), args):
        log.delete_topic(name)
        output.document({"topic": name, "deleted": True})


def _chosen(topics: Mapping[str, Topic], args: Arguments) -> list[str]:
    names = matching_topics(topics, args.topic)
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


def topic_document(topic: Topic) -> dict[str, Any]:
    """Return a topic as JSON values."""
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partitionCount": topic.partitions,
        "replicationFactor": _replication_factor(topic),
        "configs": dict(topic.configs),
        "partitions": [
            {
                "partition": number,
                "leader": None if state.leader < 0 else state.leader,
                "replicas": list(state.replicas),
                "isr": list(state.isr),
            }
            for number, state in enumerate(topic.partition_states)
        ],
    }


def _replication_factor(topic: Topic) -> int:
    # What no broker holds is held by the storage.
    return max([1, *(len(state.replicas) for state in topic.partition_states[:1])])


def _description(topic: Topic, *, with_partitions: bool) -> list[str]:
    configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
    line = (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {topic.partitions}"
        f"\tReplicationFactor: {_replication_factor(topic)}\tConfigs: {configs}"
    )
    states = enumerate(topic.partition_states) if with_partitions else ()
    return [line, *(_partition_line(topic.name, number, state) for number, state in states)]


def _partition_line(topic: str, number: int, state: Partition) -> str:
    leader = "none" if state.leader < 0 else str(state.leader)
    return (
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}"
        f"\tReplicas: {','.join(map(str, state.replicas))}\tIsr: {','.join(map(str, state.isr))}"
        "\tElr: N/A\tLastKnownElr: N/A"
    )
