"""Pages of work that only brokers do: hanging transactions, elections, and moves of replicas."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from sparklog.cli.console.hanging_transactions import abort_at, hanging_transactions
from sparklog.client.values import Election
from sparklog.cluster.metadata.image import Topic
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import (
    CONFIRM,
    PAGE,
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
    PageResource,
    RowPage,
)
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition

MINUTE_MS: Final = 60_000
OLDER_MINUTES: Final = 15
"""Kafka's `transaction.max.timeout.ms`, as `sparklog transactions --find-hanging` has it."""
MOVE_ROWS: Final = 50
REPLICAS_MAX: Final = 99
HANGING_PARTITIONS_MAX: Final = 2000
"""In which one search looks. Cost: one request to each of their leaders."""
_TOPIC: Final = FieldSpec("topic", "only in the partitions of this topic", length_max=249)
_MINUTES: Final = FieldSpec(
    "minutes", "open for longer than this", "integer", default=str(OLDER_MINUTES), most=100_000
)


def find_hanging(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the transactions of one topic, or of all, that no coordinator will end."""
    name, minutes = values.text("topic"), values.whole("minutes")
    failed: dict[TopicPartition, SparklogError] = {}
    with view.brokers_admin() as admin:
        topics = [view.topic(name)] if name else sorted(view.topics().values(), key=_name_of)
        every = [TopicPartition(one.name, n) for one in topics for n in range(one.partitions)]
        looked_at = every[:HANGING_PARTITIONS_MAX]
        found = hanging_transactions(
            admin, looked_at, older_than_ms=minutes * MINUTE_MS, now_ms=SYSTEM_CLOCK.now_ms(),
            failed=failed,
        )  # fmt: skip
    return {
        "topic": name,
        "minutes": minutes,
        "partitions": len(every),
        "lookedAt": len(looked_at) - len(failed),
        "problem": next((str(error) for error in failed.values()), None),
        "transactions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "producerId": one.producer.producer_id,
                "producerEpoch": one.producer.producer_epoch,
                "startOffset": one.producer.transaction_start_offset,
                "lastTimestamp": one.producer.last_timestamp_ms,
                "age": one.age_ms,
            }
            for one in found
        ],
    }


def _name_of(topic: Topic) -> str:
    return topic.name


def abort_transaction(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Abort the transaction that begins at an offset of a partition."""
    tp = TopicPartition(values.text("topic"), values.whole("partition"))
    with view.brokers_admin() as admin:
        abort_at(admin, tp, values.whole("startOffset"))
    return ChangeDone(
        f"Aborted the transaction at offset {values.whole('startOffset')} of {tp}.",
        f"/transactions/hanging?topic={quote(tp.topic, safe='')}",
    )


def list_moves(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the moves of replicas under way, each with the replicas that are in sync already."""
    with view.brokers_admin() as admin:
        moves = admin.reassignments()
        topics = admin.listed_topics(sorted({tp.topic for tp in moves})) if moves else {}
        brokers = admin.brokers()
    places = sorted(moves)
    page = RowPage.of(len(places), values.whole("page"), MOVE_ROWS)
    rows = []
    for tp in places[page.first : page.first + MOVE_ROWS]:
        move = moves[tp]
        states = topics[tp.topic].partition_states if tp.topic in topics else ()
        isr = set(states[tp.partition].isr) if tp.partition < len(states) else set()
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "target": list(move.target),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "inSync": sorted(isr & set(move.target)),
                "percent": round(100 * len(isr & set(move.target)) / max(1, len(move.target))),
            }
        )
    return {
        **page.document(),
        "brokers": [one.broker_id for one in brokers],
        "moves": rows,
    }


def move_replicas(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Start to move a partition to other brokers, or cancel its move."""
    tp = TopicPartition(values.text("topic"), values.whole("partition"))
    cancels = values.flag("cancel")
    wanted = None if cancels else _brokers(values.text("replicas"))
    with view.brokers_admin() as admin:
        failure = admin.alter_reassignments({tp: wanted})[tp]
    if failure is not None:
        raise failure
    spelled = ", ".join(map(str, wanted or ()))
    message = f"Cancelled the move of {tp}." if wanted is None else f"{tp} moves to {spelled}."
    return ChangeDone(message, "/moves", {"replicas": wanted})


def _brokers(text: str) -> list[int]:
    """Return the brokers of a list such as `1,2,3`. Raises InvalidRequest."""
    found = []
    for word in text.replace(",", " ").split():
        FieldSpec("replicas", "", "integer", most=2**31 - 1).check(word)
        found.append(int(word))
    if not 0 < len(found) <= REPLICAS_MAX or len(set(found)) < len(found):
        raise InvalidRequest(f"replicas are broker ids, each once, not {text[:80]!r}")
    return found


def elect_leader(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Elect the leaders of a topic's partitions, or of one."""
    name, only = values.text("topic"), values.optional_whole("partition")
    topic = view.topic(name)
    numbers = range(topic.partitions) if only is None else [only]
    election = Election(values.text("election"))
    with view.brokers_admin() as admin:
        found = admin.elect_leaders(election, [TopicPartition(name, n) for n in numbers])
    problems = [one for one in found.values() if isinstance(one, SparklogError)]
    if problems:
        raise problems[0]
    elected = sum(one is True for one in found.values())
    return ChangeDone(
        f"{elected} of {len(found)} partitions have a new leader; the right one leads the others.",
        f"/topics/{quote(name, safe='')}", {"elected": elected, "partitions": len(found)},
    )  # fmt: skip


PAGES: Final = (
    PageResource(
        "/transactions/hanging", "hanging", "Find transactions that no coordinator will end.",
        "hanging.html", find_hanging, (_TOPIC, _MINUTES), brokers_only=True,
    ),
    PageResource(
        "/moves", "moves", "List moves of replicas under way.", "moves.html", list_moves, (PAGE,),
        brokers_only=True,
    ),
)  # fmt: skip
CLUSTER_CHANGES: Final = (
    ChangeAction(
        "/topics/{topic}/partitions/{partition}/abort", "abortTransaction",
        "Abort a transaction that hangs in a partition.", ConsoleRole.ADMIN, abort_transaction,
        (
            CONFIRM,
            FieldSpec("startOffset", "its first offset", "integer", required=True),
        ),
        confirms="topic",
    ),
    ChangeAction(
        "/topics/{topic}/replicas", "moveReplicas",
        "Move a partition to other brokers, or cancel its move.", ConsoleRole.ADMIN, move_replicas,
        (
            FieldSpec("partition", "the partition", "integer", required=True),
            FieldSpec("replicas", "broker ids such as 1,2,3; the first one is to lead"),
            FieldSpec("cancel", "1 cancels the move", choices=("0", "1"), default="0"),
        ),
    ),
    ChangeAction(
        "/topics/{topic}/elections", "electLeaders", "Elect leaders of a topic's partitions.",
        ConsoleRole.ADMIN, elect_leader,
        (
            FieldSpec("partition", "only this partition", "integer"),
            FieldSpec(
                "election", "preferred, or unclean, which may lose records",
                choices=tuple(one.value for one in Election), default=Election.PREFERRED.value,
            ),
        ),
    ),
)  # fmt: skip
