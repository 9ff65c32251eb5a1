"""Decisions of the registry: pure functions of its state, which return records to append.

Nothing here reads a clock or a store. `registry.SchemaRegistry` appends the records, and decides
again on a newer state when another process was first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sparklog.registry.formats.parsed import ParsedSchema, differences
from sparklog.registry.model import refusal
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import SchemaContent, SubjectVersion
from sparklog.registry.model.subjects import context_of, split_subject
from sparklog.registry.records import (
    ID_MAX,
    ConfigPut,
    IdsSpent,
    ModePut,
    RegistryRecord,
    VersionErased,
    VersionPut,
)
from sparklog.registry.state import RegistryState, hidden

LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL",
    "FULL_TRANSITIVE",
)  # fmt: skip
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
LATEST_VERSION: Final = -1
REASON_TEXT_MAX: Final = 2000

ParsedOf = Callable[[SchemaContent], ParsedSchema]


class RegistryDecision(NamedTuple):
    """Records to append, and the result once they are there."""

    records: list[RegistryRecord]
    result: Any


@dataclass(frozen=True, slots=True)
class SchemaCandidate:
    """A schema to register."""

    subject: str
    content: SchemaContent
    """Its text is the canonical or the normalized one, and its references name versions."""
    parsed: ParsedSchema
    normalize: bool = False
    schema_id: int | None = None
    """The id to import it with."""
    version: int | None = None


def found_version(
    state: RegistryState, candidate: SchemaCandidate, *, deleted: bool = False
) -> SubjectVersion | None:
    """Return the newest version of the subject that has the candidate's schema.

    A candidate without metadata and rules also matches versions that have some.
    """
    wanted = candidate.content
    bare = wanted.metadata is None and wanted.rule_set is None
    for one in reversed(state.versions(candidate.subject, deleted=deleted)):
        if one.content.guid == wanted.guid or (bare and _plain(one.content) == _plain(wanted)):
            return one
    return None


def _plain(content: SchemaContent) -> tuple[Any, ...]:
    return content.schema_type, content.text, content.references


def register(
    state: RegistryState, candidate: SchemaCandidate, parsed_of: ParsedOf
) -> RegistryDecision:
    """Register a schema, or return the version that has it already.

    Raises:
        RegistryRefused: incompatible, or the mode or the id does not allow it.
    """
    subject, content = candidate.subject, candidate.content
    mode = state.mode(subject)
    importing = candidate.schema_id is not None
    _check_writable(state, subject)
    if importing != (mode == "IMPORT"):
        raise RegistryRefused(
            refusal.OPERATION_NOT_PERMITTED,
            f"Subject {subject} is {'not in import mode' if importing else 'in import mode'}",
        )
    for ref in content.references:
        if state.version(ref.subject, ref.version) is None:  # it was there before
            raise refusal.invalid_schema(f"a reference is gone: {ref.subject} {ref.version}")
    if importing:
        return _imported(state, candidate)
    known = next((v for v in state.versions(subject) if v.content.guid == content.guid), None)
    if known is not None:
        return RegistryDecision([], known)
    reasons = incompatibilities(state, candidate, parsed_of)
    if reasons:
        raise RegistryRefused(
            refusal.INCOMPATIBLE_SCHEMA,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{", ".join(reasons)}]',
            reasons,
        )
    context = context_of(subject)
    schema_id = state.id_of(context, content.guid) or state.next_id(context)
    number = _next_version(state, subject)
    if schema_id > ID_MAX:
        raise RegistryRefused(refusal.STORE_ERROR, "the context has no free id")
    if candidate.version not in (None, -1, 0, number):
        raise RegistryRefused(
            refusal.INVALID_SCHEMA, f"Version is not one more than previous version: {number - 1}"
        )
    made = SubjectVersion(subject, number, schema_id, content)
    return RegistryDecision([VersionPut(made)], made)


def _imported(state: RegistryState, candidate: SchemaCandidate) -> RegistryDecision:
    """Take a schema with its id, as another registry gave it."""
    subject, schema_id = candidate.subject, candidate.schema_id
    assert schema_id is not None, candidate
    known = state.content(context_of(subject), schema_id)
    if known is not None and known.guid != candidate.content.guid:
        raise RegistryRefused(
            refusal.OPERATION_NOT_PERMITTED,
            f"Overwrite new schema with id {schema_id} is not permitted.",
        )
    for one in state.versions(subject):
        if one.schema_id == schema_id and candidate.version in (None, one.version):
            return RegistryDecision([], one)
    number = candidate.version or _next_version(state, subject)
    made = SubjectVersion(subject, number, schema_id, candidate.content)
    if state.version(subject, number) is not None:
        raise RegistryRefused(
            refusal.OPERATION_NOT_PERMITTED,
            f"Overwrite of version {number} of {subject} is not permitted.",
        )
    return RegistryDecision([VersionPut(made)], made)


def _next_version(state: RegistryState, subject: str) -> int:
    versions = state.versions(subject, deleted=True)
    return versions[-1].version + 1 if versions else 1


def incompatibilities(
    state: RegistryState, candidate: SchemaCandidate, parsed_of: ParsedOf
) -> list[str]:
    """Return why a schema does not follow the subject's level; empty if it does."""
    level = str(state.config(candidate.subject)["compatibilityLevel"])
    earlier = state.versions(candidate.subject)
    if not level.endswith("_TRANSITIVE"):
        earlier = earlier[-1:]
    return compared_with(candidate.parsed, reversed(earlier), level, parsed_of)


def compared_with(parsed: ParsedSchema, earlier: Any, level: str, parsed_of: ParsedOf) -> list[str]:
    """Return why a schema and one of the earlier versions do not agree, for the first such one."""
    base = level.removesuffix("_TRANSITIVE")
    for version in earlier:
        other = parsed_of(version.content) if base != "NONE" else parsed
        found = []
        if base in ("BACKWARD", "FULL"):
            found += differences(parsed, other)
        if base in ("FORWARD", "FULL"):
            found += differences(other, parsed)
        if found:
            text = version.content.text[:REASON_TEXT_MAX]
            return [
                *dict.fromkeys(one.message() for one in found),
                f"{{oldSchemaVersion: {version.version}}}",
                f"{{oldSchema: '{text}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []


def version_of(
    state: RegistryState, subject: str, number: int, *, deleted: bool = False
) -> SubjectVersion:
    """Return a version; -1 is the latest.

    Raises:
        RegistryRefused: no such subject or version.
    """
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise no_subject(subject)
    if number == LATEST_VERSION:
        return versions[-1]
    found = next((one for one in versions if one.version == number), None)
    if found is None:
        raise RegistryRefused(refusal.VERSION_NOT_FOUND, f"Version {number} not found.")
    return found


def no_subject(subject: str) -> RegistryRefused:
    """Return the error for a subject that does not exist."""
    return RegistryRefused(refusal.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def delete_version(
    state: RegistryState, subject: str, number: int, *, permanent: bool
) -> RegistryDecision:
    """Delete a version: softly, or permanently after that.

    Raises:
        RegistryRefused: no such version, in the wrong state for it, or another schema refers to it.
    """
    _check_writable(state, subject)
    versions = state.versions(subject, deleted=True)
    if not versions:
        raise no_subject(subject)
    if number == LATEST_VERSION:
        version = version_of(state, subject, number, deleted=permanent)
    else:
        version = version_of(state, subject, number, deleted=True)
    if permanent and not version.deleted:
        raise RegistryRefused(
            refusal.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {version.version} was not deleted first before being "
            "permanently deleted",
        )
    if not permanent and version.deleted:
        raise RegistryRefused(
            refusal.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {version.version} was soft deleted. Set permanent=true "
            "to delete permanently",
        )
    _check_not_referred(state, version, permanent=permanent)
    return RegistryDecision(_deletion(state, version, permanent=permanent), version.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> RegistryDecision:
    """Delete all versions of a subject: softly, or permanently after that.

    Raises:
        RegistryRefused: no such subject, in the wrong state, or other schemas refer to it.
    """
    _check_writable(state, subject)
    every, live = state.versions(subject, deleted=True), state.versions(subject)
    if not every:
        raise no_subject(subject)
    if permanent and live:
        raise RegistryRefused(
            refusal.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not live:
        raise RegistryRefused(
            refusal.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    records: list[RegistryRecord] = []
    for version in every if permanent else live:
        _check_not_referred(state, version, permanent=permanent)
        records += _deletion(state, version, permanent=permanent)
    if subject in state.configs:
        records.append(ConfigPut(subject, None))
    if subject in state.modes:
        records.append(ModePut(subject, None))
    return RegistryDecision(records, [one.version for one in (every if permanent else live)])


def _deletion(
    state: RegistryState, version: SubjectVersion, *, permanent: bool
) -> list[RegistryRecord]:
    if not permanent:
        return [VersionPut(hidden(version))]
    context = context_of(version.subject)
    # Compaction removes the only record of the id: this one says that it is spent.
    spent = IdsSpent(context, state.next_id(context))
    return [spent, VersionErased(version.subject, version.version)]


def _check_not_referred(state: RegistryState, version: SubjectVersion, *, permanent: bool) -> None:
    others = state.referrers(version.subject, version.version)
    if any(permanent or not one.deleted for one in others):
        raise RegistryRefused(
            refusal.REFERENCE_EXISTS,
            f"One or more references exist to the schema {{subject={version.subject},"
            f"version={version.version}}}.",
        )


def _check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject).startswith("READONLY"):
        raise RegistryRefused(
            refusal.OPERATION_NOT_PERMITTED, f"Subject {subject} is in read-only mode"
        )


def put_config(
    state: RegistryState, scope: str | None, given: Mapping[str, Any]
) -> RegistryDecision:
    """Set the level of a subject, a context or the registry, and whether it normalizes.

    Raises:
        RegistryRefused: no such level, or a setting that this registry does not have.
    """
    level = given.get("compatibility", given.get("compatibilityLevel"))
    normalize = given.get("normalize")
    known = {"compatibility", "compatibilityLevel", "normalize"}
    others = sorted(name for name, value in given.items() if name not in known and value)
    if others:
        raise RegistryRefused(refusal.UNPROCESSABLE, f"settings that are not served: {others[:5]}")
    if level is not None and level not in LEVELS:
        raise RegistryRefused(
            refusal.INVALID_LEVEL,
            f"Invalid compatibility level. Valid values are {', '.join(LEVELS).lower()}",
        )
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryRefused(refusal.UNPROCESSABLE, "normalize is true or false")
    config = dict(state.configs.get(scope, {}))
    if level is not None:
        config["compatibilityLevel"] = level
    if normalize is not None:
        config["normalize"] = normalize
    return RegistryDecision([ConfigPut(scope, config)], given)


def delete_config(state: RegistryState, scope: str | None) -> RegistryDecision:
    """Return a subject, a context or the registry to its default; the result is what it had.

    Raises:
        RegistryRefused: a subject without settings of its own.
    """
    if scope not in state.configs:
        if scope is None:
            return RegistryDecision(
                [], {"compatibilityLevel": state.config("")["compatibilityLevel"]}
            )
        raise no_subject(scope)
    return RegistryDecision([ConfigPut(scope, None)], dict(state.configs[scope]))


def put_mode(
    state: RegistryState, scope: str | None, mode: Any, *, force: bool
) -> RegistryDecision:
    """Set the mode of a subject, a context or the registry.

    Raises:
        RegistryRefused: no such mode, or IMPORT where there are schemas, without `force`.
    """
    if mode not in MODES:
        raise RegistryRefused(
            refusal.INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}"
        )
    if mode == "IMPORT" and not force and any(_in_scope(scope, s) for s in state.subjects):
        raise RegistryRefused(
            refusal.OPERATION_NOT_PERMITTED, "Cannot import since found existing subjects"
        )
    return RegistryDecision([ModePut(scope, mode)], {"mode": mode})


def _in_scope(scope: str | None, subject: str) -> bool:
    if scope is None:
        return True
    context, name = split_subject(scope)
    return subject == scope if name else context_of(subject) == context


def delete_mode(state: RegistryState, scope: str | None) -> RegistryDecision:
    """Delete the mode of a subject or context; the result is what it was.

    Raises:
        RegistryRefused: it has none of its own.
    """
    if scope not in state.modes:
        if scope is None:
            return RegistryDecision([], {"mode": state.mode("")})
        raise no_subject(scope)
    return RegistryDecision([ModePut(scope, None)], {"mode": state.modes[scope]})


def with_text(content: SchemaContent, parsed: ParsedSchema, *, normalize: bool) -> SchemaContent:
    """Return a content with the text that the registry stores."""
    references = content.references
    if normalize:
        references = tuple(sorted(references, key=lambda ref: (ref.name, ref.subject)))
    text = parsed.normalized if normalize else parsed.canonical
    return replace(content, text=text, references=references)
