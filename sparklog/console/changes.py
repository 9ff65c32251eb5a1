"""Changes of the console: one table, from which forms, the JSON API and its checks are made."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from sparklog.cluster.named_snapshots import create_snapshot, drop_snapshot
from sparklog.console.broker_view import BrokerView
from sparklog.console.cluster_view import ClusterView, NewRecord
from sparklog.console.group_pages import PLAN_FIELDS, planned_offsets, positions_of
from sparklog.console.resources import (
    CONFIRM,
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
)
from sparklog.console.search_page import key_bytes
from sparklog.console.share_rows import offsets_by_partition, share_positions
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidRequest, SparklogError, Unavailable
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.core.types import TopicPartition
from sparklog.spark.schedule.history import JobRequest, write_history
from sparklog.spark.schedule.requests import application_name

PRODUCED_BYTES_MAX: Final = 1 << 20
HEADERS_MAX: Final = 100
LINES_MAX: Final = 8 * 1024
EVERY: Final = -1
ASK_WITHIN_S: Final = 5.0

NAME = FieldSpec("name", "the name", required=True, length_max=249)


def create_topic(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Create a topic."""
    name = values.text("name")
    with view.administered() as admin:
        topic = admin.create_topic(
            name,
            values.optional_whole("partitions"),
            _settings(values.text("settings")),
            values.optional_whole("replicas"),
        )
    return ChangeDone(
        f"Created topic {name} with {_count(topic.partitions, 'partition')}.", _topic(name),
        {"topic": name, "topicId": topic.topic_id, "partitions": topic.partitions},
    )  # fmt: skip


def _settings(text: str) -> dict[str, str]:
    """Return settings from lines `name=value`."""
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"settings are lines name=value, not {line[:80]!r}")
        found[name.strip()] = value.strip()
    return found


def configure_topic(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Set one setting of a topic, or reset it to its default."""
    topic, name = values.text("topic"), values.text("name")
    with view.administered() as admin:
        if values.flag("reset"):
            admin.alter_configs(topic, {}, [name])
            return ChangeDone(f"Reset {name} to its default.", _topic(topic))
        admin.alter_configs(topic, {name: values.text("value")})
    return ChangeDone(f"Set {name} to {values.text('value')}.", _topic(topic))


def add_partitions(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Grow a topic."""
    topic, total = values.text("topic"), values.whole("total")
    with view.administered() as admin:
        admin.add_partitions(topic, total)
    return ChangeDone(f"Topic {topic} has {total} partitions now.", _topic(topic))


def delete_topic(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete a topic and its records."""
    topic = values.text("topic")
    with view.administered() as admin:
        admin.delete_topic(topic)
    return ChangeDone(f"Deleted topic {topic}.", "/topics")


def purge_topic(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete all records of a topic, or those before an offset of one partition."""
    name, only = values.text("topic"), values.optional_whole("partition")
    topic = view.topic(name)
    with view.administered() as admin:
        numbers = range(topic.partitions) if only is None else [only]
        before = values.optional_whole("before")
        if before is not None and only is None:
            raise InvalidRequest("before is an offset of one partition; give the partition")
        offset = EVERY if before is None else before
        outcomes = admin.delete_records({TopicPartition(name, n): offset for n in numbers})
    for outcome in outcomes.values():
        if isinstance(outcome, SparklogError):
            raise outcome
    starts = {str(tp.partition): at for tp, at in outcomes.items()}
    return ChangeDone(
        f"Deleted records of {_count(len(starts), 'partition')} of {name}.", _topic(name),
        {"logStartOffsets": starts},
    )  # fmt: skip


def produce_record(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Append one record."""
    topic = values.text("topic")
    if topic in LISTED_AS_INTERNAL:
        raise InvalidRequest(f"only the cluster itself writes this topic. topic={topic}")
    form = values.text("format")
    key = None
    if values.text("key") or values.flag("emptyKey"):
        key = key_bytes(values.text("key"), form)
    value = None
    if not values.flag("tombstone"):
        value = key_bytes(values.text("value"), "hex" if form == "hex" else "text")
    done = view.append(
        NewRecord(
            topic, key, value, _headers(values.text("headers")), values.optional_whole("partition")
        )
    )
    number, offset = done.partition.partition, done.offset
    return ChangeDone(
        f"Appended a record to {topic}, partition {number}, offset {offset}.",
        f"{_topic(topic)}/partitions/{number}/records/{offset}",
        {"topic": topic, "partition": number, "offset": offset},
    )


def _headers(text: str) -> tuple[tuple[str, bytes], ...]:
    found = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon:
                raise InvalidRequest(f"headers are lines name: value, not {line[:80]!r}")
            found.append((name.strip(), value.strip().encode("utf-8", "surrogateescape")))
    if len(found) > HEADERS_MAX:
        raise InvalidRequest(f"too many headers. headers_max={HEADERS_MAX}")
    return tuple(found)


def reset_offsets(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Move the committed offsets of a group, as its page planned it."""
    group = values.text("group")
    if not values.text("to"):
        raise InvalidRequest("to is needed: where to")
    committed = view.committed(group)
    with view.brokers_admin() as admin:
        planned = planned_offsets(admin, positions_of(committed), values)
        for failure in admin.groups.move_offsets(group, planned).values():
            if failure is not None:
                raise failure
    return ChangeDone(
        f"Moved {_count(len(planned), 'offset')} of group {group}.", _group(group),
        {"offsets": {str(tp): at for tp, at in planned.items()}},
    )  # fmt: skip


def reset_share_offsets(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Move the start offsets of a share group, as its page planned it."""
    group = values.text("group")
    if not values.text("to"):
        raise InvalidRequest("to is needed: where to")
    with view.brokers_admin() as admin:
        planned = planned_offsets(
            admin, offsets_by_partition(share_positions(admin, group)), values
        )
        for failure in admin.share_groups.move_offsets(group, planned).values():
            if failure is not None:
                raise failure
    return ChangeDone(
        f"Moved {_count(len(planned), 'start offset')} of share group {group}.",
        _share_group(group), {"offsets": {str(tp): at for tp, at in planned.items()}},
    )  # fmt: skip


def delete_share_group(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete a share group without members, its start offsets and its states."""
    done = delete_group(view, values)
    return ChangeDone(done.message.replace("group", "share group", 1), done.location)


def delete_group(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete a group without members, and its offsets."""
    group = values.text("group")
    with view.brokers_admin() as admin:
        failure = admin.groups.delete([group])[group]
    if isinstance(view, BrokerView):
        view.forget_groups()
    if failure is not None:
        raise failure
    return ChangeDone(f"Deleted group {group}.", "/groups")


def take_snapshot(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Keep the present contents of topics under a name; of led ones what is flushed."""
    log, name = view.storage(), values.text("name")
    topics = values.text("topics").replace(",", " ").split()
    if not topics:
        topics = [one for one in view.topics() if one not in LISTED_AS_INTERNAL]
    if not topics:
        raise InvalidRequest("there is no topic to make a snapshot of")
    made = create_snapshot(log, name, topics, patience_s=ASK_WITHIN_S)
    return ChangeDone(
        f"Created snapshot {name} of {_count(len(made.partitions), 'partition')}.",
        f"/snapshots/{quote(name, safe='')}", {"name": name, "partitions": len(made.partitions)},
    )  # fmt: skip


def forget_snapshot(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Drop a snapshot; the next retention deletes what only it kept."""
    name = values.text("snapshot")
    drop_snapshot(view.storage().store, name)
    return ChangeDone(f"Dropped snapshot {name}.", "/snapshots")


def run_job(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Ask the applications that serve the log to run a job now."""
    log, job = view.storage(), values.text("job")
    if job not in view.jobs().jobs:
        raise InvalidRequest(f"no application runs a job of this name. job={job}")
    topic = view.topics()
    if not any(state.leader >= 0 for one in topic.values() for state in one.partition_states):
        raise Unavailable(
            "no application serves this log, so none can run the job; "
            f"use `sparklog jobs --run {job}`"
        )
    request = JobRequest(new_nonce(SYSTEM_ENTROPY), job, application_name(), SYSTEM_CLOCK.now_ms())
    write_history(log, request, patience_s=ASK_WITHIN_S)
    return ChangeDone(
        f"Asked for a run of job {job}; an idle application takes it within seconds.",
        f"/jobs?job={quote(job, safe='')}", {"request": request.request_id},
    )  # fmt: skip


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _topic(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


def _share_group(name: str) -> str:
    return f"/share-groups/{quote(name, safe='')}"


def _group(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


_RECORD_FIELDS: Final = (
    FieldSpec("key", "the key; without one the record has none", length_max=PRODUCED_BYTES_MAX),
    FieldSpec("value", "the value", length_max=PRODUCED_BYTES_MAX),
    FieldSpec("headers", "lines name: value", length_max=LINES_MAX),
    FieldSpec("partition", "the partition; without it the key decides", "integer"),
    FieldSpec("format", "how key and value are written", choices=("text", "hex"), default="text"),
    FieldSpec("tombstone", "1 for a record without a value", choices=("0", "1"), default="0"),
    FieldSpec("emptyKey", "1 for a key without bytes", choices=("0", "1"), default="0"),
)

CHANGES: Final = (
    ChangeAction(
        "/topics", "createTopic", "Create a topic.", ConsoleRole.EDITOR, create_topic,
        (
            NAME,
            FieldSpec("partitions", "how many", "integer", least=1, most=100_000),
            FieldSpec("replicas", "brokers that hold each partition", "integer", least=1, most=99),
            FieldSpec("settings", "lines name=value", length_max=LINES_MAX),
        ),
    ),
    ChangeAction(
        "/topics/{topic}/settings", "configureTopic", "Set or reset a setting of a topic.",
        ConsoleRole.ADMIN, configure_topic,
        (
            NAME, FieldSpec("value", "its value", length_max=4096),
            FieldSpec("reset", "1 resets it", choices=("0", "1"), default="0"),
        ),
    ),
    ChangeAction(
        "/topics/{topic}/partitions", "addPartitions", "Add partitions to a topic.",
        ConsoleRole.ADMIN, add_partitions,
        (FieldSpec("total", "how many it shall have", "integer", required=True, most=100_000),),
    ),
    ChangeAction(
        "/topics/{topic}/delete", "deleteTopic", "Delete a topic and its records.",
        ConsoleRole.ADMIN, delete_topic, (CONFIRM,), confirms="topic",
    ),
    ChangeAction(
        "/topics/{topic}/purge", "purgeTopic", "Delete records of a topic.",
        ConsoleRole.ADMIN, purge_topic,
        (
            CONFIRM, FieldSpec("partition", "only this partition", "integer"),
            FieldSpec("before", "only records before this offset", "integer"),
        ),
        confirms="topic",
    ),
    ChangeAction(
        "/topics/{topic}/records", "produceRecord", "Append one record.", ConsoleRole.EDITOR,
        produce_record, _RECORD_FIELDS, body_max=4 * PRODUCED_BYTES_MAX,
    ),
    ChangeAction(
        "/groups/{group}/offsets", "resetOffsets", "Move a group's committed offsets.",
        ConsoleRole.EDITOR, reset_offsets, PLAN_FIELDS,
    ),
    ChangeAction(
        "/groups/{group}/delete", "deleteGroup", "Delete a group and its offsets.",
        ConsoleRole.ADMIN, delete_group, (CONFIRM,), confirms="group",
    ),
    ChangeAction(
        "/share-groups/{group}/offsets", "resetShareOffsets",
        "Move the start offsets of a share group.", ConsoleRole.EDITOR, reset_share_offsets,
        PLAN_FIELDS,
    ),
    ChangeAction(
        "/share-groups/{group}/delete", "deleteShareGroup",
        "Delete a share group and the states of its records.", ConsoleRole.ADMIN,
        delete_share_group, (CONFIRM,), confirms="group",
    ),
    ChangeAction(
        "/snapshots", "createSnapshot", "Create a snapshot of topics.", ConsoleRole.EDITOR,
        take_snapshot,
        (NAME, FieldSpec("topics", "names; all without them", length_max=LINES_MAX)),
    ),
    ChangeAction(
        "/snapshots/{snapshot}/drop", "dropSnapshot", "Drop a snapshot.", ConsoleRole.ADMIN,
        forget_snapshot, (CONFIRM,), confirms="snapshot",
    ),
    ChangeAction(
        "/jobs/{job}/run", "runJob", "Run a job now.", ConsoleRole.EDITOR, run_job,
    ),
)  # fmt: skip


def fields_document(action: ChangeAction) -> dict[str, Any]:
    """Return the JSON schema of an action's fields."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [one.name for one in action.fields if one.required],
        "properties": {one.name: field_schema(one) for one in action.fields},
    }


def field_schema(spec: FieldSpec) -> dict[str, Any]:
    """Return the JSON schema of one field or parameter."""
    schema: dict[str, Any] = {"type": "string", "description": spec.summary}
    if spec.kind == "integer":
        schema |= {"type": "integer", "minimum": spec.least, "maximum": spec.most}
        if spec.default:
            schema["default"] = int(spec.default)
        return schema
    schema["maxLength"] = spec.length_max
    if spec.choices:
        schema["enum"] = list(spec.choices)
    if spec.default:
        schema["default"] = spec.default
    return schema
