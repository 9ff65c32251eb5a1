"""`sparklog reassign-partitions`: kafka-reassign-partitions, moving replicas between brokers.

JSON files name the replicas of partitions, in kafka-reassign-partitions' format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    add_actions,
    check_needed,
    check_options,
)
from sparklog.cli.commands.log_dirs import chosen_brokers
from sparklog.cli.console.partition_file import (
    VERSION,
    entries_of,
    named_partition,
    once_each,
    text_of,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_broker_options, connected
from sparklog.client.values import ServingBroker
from sparklog.cluster.metadata.image import Broker, Topic
from sparklog.cluster.metadata.replica_placer import place
from sparklog.core.errors import InvalidRequest, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin


EXAMPLE = '{"version": 1, "partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2, 3]}]}'
TOPICS_EXAMPLE = '{"version": 1, "topics": [{"topic": "foo"}]}'


def parse_assignment(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition in a file.

    Raises:
        InvalidRequest: another format, a partition twice, or a replica twice.
    """
    wanted: list[tuple[TopicPartition, tuple[int, ...]]] = []
    for entry in entries_of(text, EXAMPLE):
        tp, replicas = named_partition(entry, EXAMPLE), entry.get("replicas")
        if not isinstance(replicas, list) or not all(type(r) is int for r in replicas):
            raise InvalidRequest(
                f"the file must look like {EXAMPLE}. problem=replicas are {replicas!r}"
            )
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidRequest(
                f"a partition needs replicas, each once. partition={tp} replicas={replicas}"
            )
        directories = entry.get("log_dirs", [])
        if not isinstance(directories, list) or directories != ["any"] * len(directories):
            raise InvalidRequest(
                f'log_dirs may only be "any": brokers have one place each. partition={tp}'
            )
        wanted.append((tp, tuple(replicas)))
    once_each(tp for tp, _ in wanted)
    if not wanted:
        raise InvalidRequest("the file names no partitions")
    return dict(wanted)


def parse_topics(text: str) -> list[str]:
    """Return the topics in a file.

    Raises:
        InvalidRequest: another format.
    """
    names = [entry.get("topic") for entry in entries_of(text, TOPICS_EXAMPLE, under="topics")]
    topics = [name for name in names if isinstance(name, str)]
    if not topics or len(topics) < len(names):
        raise InvalidRequest(f"the file must look like {TOPICS_EXAMPLE}. topics={names}")
    return topics


def spelled_assignment(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the JSON of an assignment, as Kafka writes it."""
    document = {
        "version": VERSION,
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(replicas),
                "log_dirs": ["any"] * len(replicas),
            }
            for tp, replicas in sorted(assignment.items())
        ],
    }
    return json.dumps(document, separators=(",", ":"))


Replicas = tuple[int, ...]

_HELP = {
    "generate": "propose where the partitions of topics could go; moves nothing",
    "execute": "start to move",
    "verify": "show how far a move is; fails while one is under way",
    "list": "show all moves under way",
    "cancel": "call moves off",
}
_ACTIONS_OF_OPTION = {
    "topics_to_move_json_file": ("generate",),
    "broker_list": ("generate",),
    "disable_rack_aware": ("generate",),
    "reassignment_json_file": ("execute", "verify", "cancel"),
    "additional": ("execute",),
}
_NEEDED = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(parser, _HELP)
    parser.add_argument(
        "--topics-to-move-json-file", metavar="FILE", help=f"topics, such as {TOPICS_EXAMPLE}"
    )
    parser.add_argument("--broker-list", metavar="ID,...", help="the brokers to move to")
    parser.add_argument(
        "--disable-rack-aware", action="store_true", help="do not spread replicas over racks"
    )
    parser.add_argument(
        "--reassignment-json-file", metavar="FILE", help=f"where to move, such as {EXAMPLE}"
    )
    parser.add_argument(
        "--additional", action="store_true", help="start although other moves are under way"
    )
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the requested action."""
    check_options(args, _ACTIONS_OF_OPTION)
    check_needed(args, _NEEDED[args.action])
    with connected(args) as admin:
        return _ACTIONS[args.action](admin, args, output)


def _generate(admin: Admin, args: Arguments, output: Output) -> int:
    topics = admin.topics()
    names = parse_topics(text_of(args.topics_to_move_json_file))
    brokers = chosen_brokers(admin.brokers(), args.broker_list)
    current = _current(topics, [tp for name in names for tp in _partitions(topics, name)])
    proposed: dict[TopicPartition, Replicas] = {}
    for name in names:
        partitions = _partitions(topics, name)
        placed = place(
            [_for_placement(broker, racks=not args.disable_rack_aware) for broker in brokers],
            len(partitions),
            len(current[partitions[0]]),
            start=0,
        )
        proposed |= dict(zip(partitions, placed, strict=True))
    output.line("Current partition replica assignment")
    output.line(f"{spelled_assignment(current)}\n")
    output.line("Proposed partition reassignment configuration")
    output.line(spelled_assignment(proposed))
    for tp, replicas in sorted(proposed.items()):
        output.document(
            {**_document(tp), "replicas": list(current[tp]), "proposedReplicas": list(replicas)}
        )
    return 0


def _execute(admin: Admin, args: Arguments, output: Output) -> int:
    wanted = parse_assignment(text_of(args.reassignment_json_file))
    if not args.additional and admin.reassignments():
        raise InvalidRequest(
            "other moves are under way; use --additional to start these besides, or --list to see "
            "them"
        )
    current = _current(admin.topics(), wanted)
    unknown = {b for replicas in wanted.values() for b in replicas} - {
        broker.broker_id for broker in admin.brokers()
    }
    if unknown:
        raise InvalidRequest(
            "no such broker serves; `sparklog brokers` lists them. "
            f"brokers={','.join(map(str, sorted(unknown)))}"
        )
    output.line("Current partition replica assignment\n")
    output.line(f"{spelled_assignment(current)}\n")
    output.line("Save this to use as the --reassignment-json-file option during rollback")
    outcomes = admin.alter_reassignments(wanted)
    started = [tp for tp, failure in sorted(outcomes.items()) if failure is None]
    if started:
        output.line(
            f"Successfully started partition reassignment{'s' if len(started) > 1 else ''} for "
            f"{','.join(map(str, started))}"
        )
    for tp in started:
        output.document(
            {**_document(tp), "replicas": list(current[tp]), "targetReplicas": list(wanted[tp])}
        )
    return _report(outcomes, output, "not moved")


def _verify(admin: Admin, args: Arguments, output: Output) -> int:
    wanted = parse_assignment(text_of(args.reassignment_json_file))
    moving = admin.reassignments(list(wanted))
    topics = admin.topics()
    output.line("Status of partition reassignment:")
    done = True
    for tp, target in sorted(wanted.items()):
        now = _replicas(topics, tp)
        if tp in moving:
            status, text = "in progress", f"Reassignment of partition {tp} is still in progress."
        elif now == target:
            status, text = "completed", f"Reassignment of partition {tp} is completed."
        else:
            status = "not active"
            has = "it does not exist" if now is None else f"replica set is {_ids(now)}"
            text = (
                f"There is no active reassignment of partition {tp}, but {has} rather than "
                f"{_ids(target)}."
            )
        done = done and status == "completed"
        output.put(
            text,
            {
                **_document(tp),
                "status": status,
                "replicas": list(now or ()),
                "targetReplicas": list(target),
            },
        )
    return 0 if done else 1


def _list(admin: Admin, args: Arguments, output: Output) -> int:
    del args
    moving = admin.reassignments()
    output.line(
        "Current partition reassignments:" if moving else "No partition reassignments found."
    )
    for tp, move in sorted(moving.items(), key=lambda item: item[0]):
        adding = f" adding: {_ids(move.adding)}." if move.adding else ""
        removing = f" removing: {_ids(move.removing)}." if move.removing else ""
        output.put(
            f"{tp}: replicas: {_ids(move.replicas)}.{adding}{removing}",
            {
                **_document(tp),
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
            },
        )
    return 0


def _cancel(admin: Admin, args: Arguments, output: Output) -> int:
    wanted = parse_assignment(text_of(args.reassignment_json_file))
    moving = sorted(admin.reassignments(list(wanted)))
    if not moving:
        output.line("None of the specified partition reassignments are active.")
        return 0
    outcomes = admin.alter_reassignments(dict.fromkeys(moving))
    ended = [tp for tp, failure in sorted(outcomes.items()) if failure is None]
    if ended:
        output.line(
            f"Successfully cancelled partition reassignment{'s' if len(ended) > 1 else ''} for: "
            f"{','.join(map(str, ended))}"
        )
    for tp in ended:
        output.document({**_document(tp), "cancelled": True})
    return _report(outcomes, output, "not called off")


_ACTIONS = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "list": _list,
    "cancel": _cancel,
}


def _report(
    outcomes: Mapping[TopicPartition, SparklogError | None], output: Output, what: str
) -> int:
    failures = {tp: failure for tp, failure in outcomes.items() if failure is not None}
    for tp, failure in sorted(failures.items(), key=lambda item: item[0]):
        output.put(f"{tp}: {failure}", {**_document(tp), "error": str(failure)})
    if failures:
        output.flush()
        say(f"error: {len(failures)} of {len(outcomes)} partitions are {what}")
    return 1 if failures else 0


def _partitions(topics: Mapping[str, Topic], name: str) -> list[TopicPartition]:
    if name not in topics:
        raise UnknownTopicOrPartition(
            f"no such topic; `sparklog topics --list` lists them. topic={name}"
        )
    return [TopicPartition(name, number) for number in range(topics[name].partitions)]


def _current(
    topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Replicas]:
    found = {}
    for tp in partitions:
        replicas = _replicas(topics, tp)
        if replicas is None:
            raise UnknownTopicOrPartition(f"no such partition. partition={tp}")
        found[tp] = replicas
    return found


def _replicas(topics: Mapping[str, Topic], tp: TopicPartition) -> Replicas | None:
    topic = topics.get(tp.topic)
    if topic is None or not 0 <= tp.partition < topic.partitions:
        return None
    return topic.partition_states[tp.partition].replicas


def _for_placement(broker: ServingBroker, *, racks: bool) -> Broker:
    known = Broker(broker.broker_id, "", broker.host, broker.port, broker.rack, epoch=0)
    return known if racks else replace(known, rack=None)


def _document(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
