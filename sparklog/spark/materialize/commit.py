"""Table commit: a Delta commit's account of its records, and the plan of the next one.

Every commit of a materialised table holds one `TableCommit` in JSON as its user metadata. It has
the batch's number and the offsets [from, until) of every partition. It is written in the same
Delta commit as the rows. So the table itself says where to go on, and nothing else has to be kept.
Pure.

  MATERIALIZE-COMMIT-1: a commit's `from` is the `until` of the commit before it, but where data
      was lost (allowed)
  MATERIALIZE-COMMIT-2: batch numbers rise by one. Delta takes each number once (txnVersion), so
      that of two writers that planned from the same commit one has no effect
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import DataCorrupt, InvalidRequest, OffsetOutOfRange
from sparklog.core.types import OffsetRange

if TYPE_CHECKING:
    from sparklog.registry.protobuf_message import ProtobufReading

APP_ID: Final = "sparklog-materialize"
"""Delta's txnAppId: one table has one job, independent of the job's name or machine."""
VERSION: Final = 1
JSON, AVRO, RAW, REGISTRY = "json", "avro", "raw", "registry"
PROTOBUF: Final = "protobuf"
"""Only by REGISTRY."""
FORMATS: Final = (JSON, AVRO, RAW, REGISTRY)
"""With REGISTRY the schema of each value says which of the others it is."""
APPEND, UPSERT = "append", "upsert"
MODES: Final = (APPEND, UPSERT)

Ranges = Mapping[int, OffsetRange]


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema that values are written with."""

    version: int
    """Of the subject; a commit keeps only this."""
    schema: str = ""
    """An Avro schema."""
    keys: tuple[str, ...] = ()
    """The ids of it that values carry, in hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class ValuesMessage:
    """The message that Protobuf values have."""

    name: str
    """The full name."""
    version: int
    """The version of the subject that gives the columns."""


@dataclass(frozen=True, slots=True)
class Values:
    """The format of a value's bytes."""

    format: str = JSON
    schema: str | None = None
    """Fields of JSON, as Spark's JSON of a type; an Avro schema; nothing for raw."""
    grows: bool = False
    """New fields of JSON become columns."""
    clashes: tuple[str, ...] = ()
    """Paths of JSON fields that cannot be columns (`materialize_schema`); their rows are bad."""
    each_document: bool = False
    """A value may hold several JSON documents, and each is a row."""
    writers: tuple[WriterSchema, ...] = ()
    """For values that carry ids: all that were registered when the batch was planned."""
    message: ValuesMessage | None = None
    """For Protobuf."""
    reading: ProtobufReading | None = None
    """For Protobuf, from the registry; a commit does not keep it."""


@dataclass(frozen=True, slots=True)
class CommitOrigin:
    """The source of a table, and its conversion; it stays the same for all its batches."""

    topic: str
    topic_id: str
    mode: str = APPEND
    isolation: str = "read_committed"


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One batch of a materialised table."""

    batch: int
    """From 1."""
    nonce: str
    """Distinguishes one writer's commit from another's with the same number."""
    origin: CommitOrigin
    ranges: Ranges
    """By partition; all that are known, empty ranges too."""
    values: Values

    @property
    def ends(self) -> dict[int, int]:
        """Return where to go on, by partition."""
        return {number: offsets.end_offset for number, offsets in self.ranges.items()}

    @property
    def offsets(self) -> int:
        """Return how many offsets it covers."""
        return offsets_in(self.ranges)

    def to_json(self) -> str:
        """Return it as one line."""
        versions = [writer.version for writer in self.values.writers]
        document = {
            "sparklog": VERSION,
            "batch": self.batch,
            "nonce": self.nonce,
            "topic": self.origin.topic,
            "topic_id": self.origin.topic_id,
            "offsets": [
                {"partition": number, "from": one.base_offset, "until": one.end_offset}
                for number, one in sorted(self.ranges.items())
            ],
            "mode": self.origin.mode,
            "isolation": self.origin.isolation,
            "values": {
                "format": self.values.format,
                "schema": self.values.schema,
                "grows": self.values.grows,
                "clashes": self.values.clashes,
                **({"each_document": True} if self.values.each_document else {}),
                **({"versions": versions} if versions else {}),
                **_message_document(self.values.message),
            },
        }
        return json.dumps(document, separators=(",", ":"))


def _message_document(message: ValuesMessage | None) -> dict[str, Any]:
    if message is None:
        return {}
    return {"message": {"name": message.name, "version": message.version}}


def parse_commit(text: str | None) -> TableCommit | None:
    """Return what a commit's user metadata says, None if it is not of a materialisation.

    Raises:
        InvalidRequest: a newer sparklog wrote it. DataCorrupt: it is ours and makes no sense.
    """
    try:
        document = parse_json(text or "", "metadata of a Delta commit")
    except ValueError:
        return None
    if not isinstance(document, dict) or "sparklog" not in document:
        return None
    if document["sparklog"] != VERSION:
        raise InvalidRequest(
            "a newer sparklog has written this table; go on with that one. "
            f"version={document['sparklog']} known={VERSION}"
        )
    try:
        return _commit(document)
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(
            f"a Delta commit's user metadata is damaged. reason={error!r} metadata={text}"
        ) from error


def avro_fields(schema: str) -> dict[str, bool]:
    """Return the fields of an Avro record, and whether each may be null.

    Raises:
        InvalidRequest: it is not the schema of a record with fields, or it has arrays whose items
            take no bytes.
    """
    try:
        document = parse_json(schema, "Avro schema")
        if document["type"] != "record" or not document["fields"]:
            raise ValueError("it has no fields")
        if _has_empty_items(document):
            raise ValueError("items of an array take no bytes, so a value may claim any number")
        return {str(field["name"]): _may_be_null(field["type"]) for field in document["fields"]}
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"an Avro schema of values must be a record, in JSON. reason={error!r}"
        ) from error


def _has_empty_items(kind: Any) -> bool:
    """Return whether an Avro type has an array, anywhere in it, whose items take no bytes."""
    if isinstance(kind, list):
        return any(_has_empty_items(one) for one in kind)
    if not isinstance(kind, dict):
        return False
    if kind.get("type") == "array" and _is_empty(kind["items"]):
        return True
    inner = [kind.get("type"), kind.get("items"), kind.get("values")]
    return any(map(_has_empty_items, inner)) or any(
        _has_empty_items(field["type"]) for field in kind.get("fields", ())
    )


def _is_empty(kind: Any) -> bool:
    """Return whether values of an Avro type take no bytes."""
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind["type"] == "record":
        return all(_is_empty(field["type"]) for field in kind["fields"])
    if kind["type"] == "fixed":
        return bool(kind["size"] == 0)
    return _is_empty(kind["type"])


def _may_be_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def offsets_in(ranges: Ranges) -> int:
    """Return how many offsets ranges cover."""
    return sum(one.end_offset - one.base_offset for one in ranges.values())


def check_origin(last: TableCommit, wanted: CommitOrigin, *, fail_on_data_loss: bool) -> None:
    """Refuse a table that something else is written to.

    Raises:
        InvalidRequest: it holds another topic, or is kept in another way.
        OffsetOutOfRange: its topic was deleted and created again, and that is to fail.
    """
    was = last.origin
    for what in ("topic", "mode", "isolation"):
        if getattr(was, what) != getattr(wanted, what):
            raise InvalidRequest(
                f"the table was made with another {what}; go on with that, or use another table. "
                f"{what}={getattr(wanted, what)} table={getattr(was, what)}"
            )
    if was.topic_id != wanted.topic_id and fail_on_data_loss:
        raise OffsetOutOfRange(
            "the topic was deleted and created again since the table was written, and a new topic "
            "does not continue an old one; use another table, or go on with --fail-on-data-loss "
            f"false, which appends the new topic from its beginning. topic={wanted.topic} "
            f"topic_id={wanted.topic_id} table={was.topic_id}"
        )


def next_starts(
    known: Mapping[int, int], log: Ranges, *, first: bool, fail_on_data_loss: bool
) -> dict[int, int]:
    """Return where the next batch begins in every partition of the log.

    Args:
        `known`: the end of the table's records, by partition.
        `log`: the present extent of each partition.
        `first`: nothing is in the table yet, so that a log that does not begin at 0 is no loss.
        `fail_on_data_loss`: refuse a gap; else begin where the log does.

    Raises:
        OffsetOutOfRange: records between the table's end and the log's start are gone, or the log
            ends before the table does.
    """
    starts = {}
    for number, held in sorted(log.items()):
        at = known.get(number, held.base_offset if first else 0)
        if not held.base_offset <= at <= held.end_offset:
            if fail_on_data_loss:
                raise OffsetOutOfRange(
                    "records that the table lacks are gone from the log, or the log is not the one "
                    "that the table was made from; to go on without them say --fail-on-data-loss "
                    f"false. partition={number} table_end={at} log_start={held.base_offset} "
                    f"log_end={held.end_offset}"
                )
            at = min(max(at, held.base_offset), held.end_offset)
        starts[number] = at
    missing = known.keys() - log.keys()
    if missing and fail_on_data_loss:
        raise OffsetOutOfRange(
            f"partitions that the table was made from are gone. partitions={sorted(missing)}"
        )
    return starts


def _commit(document: Mapping[str, Any]) -> TableCommit:
    values = document["values"]
    return TableCommit(
        batch=int(document["batch"]),
        nonce=str(document["nonce"]),
        origin=CommitOrigin(
            str(document["topic"]),
            str(document["topic_id"]),
            str(document["mode"]),
            str(document["isolation"]),
        ),
        ranges={
            int(one["partition"]): OffsetRange(int(one["from"]), int(one["until"]))
            for one in document["offsets"]
        },
        values=Values(
            str(values["format"]),
            values["schema"],
            bool(values["grows"]),
            tuple(str(path) for path in values["clashes"]),
            bool(values.get("each_document", False)),
            tuple(WriterSchema(int(version)) for version in values.get("versions", ())),
            _message(values.get("message")),
        ),
    )


def _message(document: Any) -> ValuesMessage | None:
    if document is None:
        return None
    return ValuesMessage(str(document["name"]), int(document["version"]))
