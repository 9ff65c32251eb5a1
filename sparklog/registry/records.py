"""The records of the topic `_schemas`, in the format of Confluent's registry.

Keys and values are JSON objects. `keytype` names the kind: SCHEMA for a version of a subject,
CONFIG and MODE for settings, DELETE_SUBJECT for versions that are soft-deleted, NOOP for nothing.
SPARKLOG_IDS is ours: ids below `nextId` are spent, even if no record has them now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import DataCorrupt
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import (
    VERSION_MAX,
    SubjectVersion,
    compact_json,
    is_whole,
    read_content,
)
from sparklog.registry.model.subjects import checked_scope, checked_subject

RECORD_BYTES_MAX: Final = 4 << 20
ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class VersionPut:
    """A version of a subject, as it is from now on."""

    version: SubjectVersion


@dataclass(frozen=True, slots=True)
class VersionErased:
    """A version is deleted permanently."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class VersionsHidden:
    """All versions of a subject up to this one are soft-deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigPut:
    """The settings of a subject, a context or (None) the registry; None deletes them."""

    scope: str | None
    config: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ModePut:
    """The mode of a subject, a context or (None) the registry; None deletes it."""

    scope: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class IdsSpent:
    """From now on no schema of the context gets an id below `next_id`."""

    context: str
    next_id: int


RegistryRecord = VersionPut | VersionErased | VersionsHidden | ConfigPut | ModePut | IdsSpent


def encode_record(record: RegistryRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record."""
    key, value = _documents(record)
    return compact_json(key).encode(), None if value is None else compact_json(value).encode()


def _documents(record: RegistryRecord) -> tuple[dict[str, Any], dict[str, Any] | None]:
    match record:
        case VersionPut(version):
            value = {
                "subject": version.subject,
                "version": version.version,
                "id": version.schema_id,
                "guid": version.content.guid,
                **version.content.document(),
                "deleted": version.deleted,
            }
            return _schema_key(version.subject, version.version), value
        case VersionErased(subject, number):
            return _schema_key(subject, number), None
        case VersionsHidden(subject, number):
            key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
            return key, {"subject": subject, "version": number}
        case ConfigPut(scope, config):
            key = {"keytype": "CONFIG", "subject": scope, "magic": 0}
            return key, None if config is None else {"subject": scope, **config}
        case ModePut(scope, mode):
            key = {"keytype": "MODE", "subject": scope, "magic": 0}
            return key, None if mode is None else {"subject": scope, "mode": mode}
        case IdsSpent(context, next_id):
            key = {"keytype": "SPARKLOG_IDS", "context": context, "magic": 0}
            return key, {"nextId": next_id}


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def decode_record(key: bytes | None, value: bytes | None) -> RegistryRecord | None:
    """Return a record, or None for one that says nothing to this registry.

    Raises:
        DataCorrupt: the record is not as its kind has to be; the caller passes over it.
    """
    if key is None:
        return None
    try:
        return _decoded(
            parse_json(key, "a key of _schemas", bytes_max=RECORD_BYTES_MAX),
            None
            if value is None
            else parse_json(value, "a value of _schemas", bytes_max=RECORD_BYTES_MAX),
        )
    except RegistryRefused as error:
        raise DataCorrupt(f"not a record of _schemas: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"not a record of _schemas: {error!r}") from error


def _decoded(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> RegistryRecord | None:
    match key["keytype"]:
        case "SCHEMA":
            subject, number = checked_subject(key["subject"]), _number(key["version"], VERSION_MAX)
            if value is None:
                return VersionErased(subject, number)
            return VersionPut(
                SubjectVersion(
                    subject,
                    number,
                    _number(value["id"], ID_MAX),
                    read_content(value),
                    bool(value.get("deleted", False)),
                )
            )
        case "DELETE_SUBJECT" if value is not None:
            return VersionsHidden(
                checked_subject(key["subject"]), _number(value["version"], VERSION_MAX)
            )
        case "CONFIG":
            settings = None if value is None else {k: v for k, v in value.items() if k != "subject"}
            return ConfigPut(_scope(key), settings)
        case "MODE":
            return ModePut(_scope(key), None if value is None else str(value["mode"]))
        case "SPARKLOG_IDS" if value is not None:
            return IdsSpent(str(key["context"]), _number(value["nextId"], ID_MAX + 1))
    return None


def _scope(key: Mapping[str, Any]) -> str | None:
    subject = key.get("subject")
    return None if subject is None else checked_scope(subject)


def _number(value: Any, highest: int) -> int:
    if not is_whole(value) or not 0 <= value <= highest:
        raise ValueError(f"not a number from 0 to {highest}: {str(value)[:40]}")
    return int(value)
