"""The REST API as functions: a request to the JSON value of its response.

Paths, parameters, bodies and codes are those of Confluent's registry, so that its clients work
unmodified. Each function runs in a thread of its own and may wait for the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparklog.registry import decisions
from sparklog.registry.formats.parsed import ParsedSchema
from sparklog.registry.http.request import ApiRequest
from sparklog.registry.model import refusal
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import (
    PROTOBUF,
    SCHEMA_TYPES,
    VERSION_MAX,
    SchemaContent,
    SubjectVersion,
    plain_avro,
)
from sparklog.registry.model.subjects import context_of, qualified, split_subject
from sparklog.registry.records import ID_MAX
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.state import RegistryState

Handler = Callable[[SchemaRegistry, ApiRequest], Any]
SERIALIZED: Final = "serialized"
ALL_CONTEXTS: Final = ":*:"


class SchemaText(str):
    """A response that is the schema itself, and no JSON."""

    __slots__ = ()


def schema_types(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/types`."""
    return list(SCHEMA_TYPES)


def schema_by_id(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/ids/{id}`."""
    content = _content(registry, asked)
    found = plain_avro({"guid": content.guid, **content.document()})
    found["schema"] = _text(registry, content, asked)
    if asked.flag("fetchMaxId"):
        context = _context(asked)
        found["maxId"] = registry.query(lambda state: state.next_id(context) - 1)
    return found


def text_by_id(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/ids/{id}/schema`."""
    return SchemaText(_text(registry, _content(registry, asked), asked))


def subjects_of_id(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/ids/{id}/subjects`."""
    return asked.page(sorted({one.subject for one in _uses(registry, asked)}))


def versions_of_id(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/ids/{id}/versions`."""
    found = [{"subject": one.subject, "version": one.version} for one in _uses(registry, asked)]
    return asked.page(found)


def schema_by_guid(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/guids/{guid}`."""
    content = _content_of_guid(registry, asked.path["guid"])
    found = plain_avro({"guid": content.guid, **content.document()})
    found["schema"] = _text(registry, content, asked)
    return found


def ids_of_guid(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /schemas/guids/{guid}/ids`."""
    guid = _content_of_guid(registry, asked.path["guid"]).guid

    def ids(state: RegistryState) -> list[dict[str, Any]]:
        found = [(context, state.id_of(context, guid)) for context in state.contexts()]
        return [{"context": context, "id": one} for context, one in found if one is not None]

    return registry.query(ids)


def subjects(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /subjects`."""
    prefix = asked.query.get("subjectPrefix", "")
    every = prefix in (ALL_CONTEXTS, "")
    deleted, only = asked.flag("deleted"), asked.flag("deletedOnly")

    def names(state: RegistryState) -> list[str]:
        found = []
        for name, versions in state.subjects.items():
            hidden = all(one.deleted for one in versions.values())
            if (hidden if only else deleted or not hidden) and (every or name.startswith(prefix)):
                found.append(name)
        return sorted(found)

    return asked.page(registry.query(names))


def contexts(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /contexts`."""
    return asked.page(registry.query(lambda state: state.contexts()))


def versions(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /subjects/{subject}/versions`."""
    subject, only = asked.subject(), asked.flag("deletedOnly")
    deleted = only or asked.flag("deleted")
    found = registry.query(lambda state: state.versions(subject, deleted=deleted))
    if not found:
        raise decisions.no_subject(subject)
    return asked.page([one.version for one in found if one.deleted or not only])


def version(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /subjects/{subject}/versions/{version}`."""
    found = _version(registry, asked)
    return {**found.document(), "schema": _text(registry, found.content, asked)}


def text_of_version(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /subjects/{subject}/versions/{version}/schema`."""
    return SchemaText(_text(registry, _version(registry, asked).content, asked))


def referenced_by(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /subjects/{subject}/versions/{version}/referencedby`: the ids of referrers."""
    found = _version(registry, asked)
    others = registry.query(lambda state: state.referrers(found.subject, found.version))
    deleted = asked.flag("deleted")
    return asked.page(sorted({one.schema_id for one in others if deleted or not one.deleted}))


def register(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `POST /subjects/{subject}/versions`."""
    candidate = registry.candidate(
        asked.subject(),
        asked.content(),
        normalize=asked.flag("normalize"),
        schema_id=asked.number("id", ID_MAX),
        version=asked.number("version", VERSION_MAX),
    )
    found = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    assert isinstance(found, SubjectVersion), found
    made: dict[str, Any] = found.document()
    del made["subject"]
    return made


def look_up(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `POST /subjects/{subject}`: the version that has this schema."""
    subject, deleted = asked.subject(), asked.flag("deleted")
    if not registry.query(lambda state: state.versions(subject, deleted=deleted)):
        raise decisions.no_subject(subject)
    candidate = registry.candidate(subject, asked.content(), normalize=asked.flag("normalize"))
    found = registry.query(
        lambda state: decisions.found_version(state, candidate, deleted=deleted), fresh=False
    )
    if found is None:
        raise RegistryRefused(refusal.SCHEMA_NOT_FOUND, "Schema not found")
    return {**found.document(), "schema": _text(registry, found.content, asked)}


def delete_version(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `DELETE /subjects/{subject}/versions/{version}`."""
    subject, number, permanent = asked.subject(), asked.version(), asked.flag("permanent")
    return registry.change(
        lambda state, _: decisions.delete_version(state, subject, number, permanent=permanent)
    )


def delete_subject(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `DELETE /subjects/{subject}`."""
    subject, permanent = asked.subject(), asked.flag("permanent")
    return registry.change(
        lambda state, _: decisions.delete_subject(state, subject, permanent=permanent)
    )


def compatibility(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `POST /compatibility/subjects/{subject}/versions` and `…/{version}`."""
    subject = asked.subject()
    number = asked.version() if "version" in asked.path else None
    candidate = registry.candidate(subject, asked.content(), normalize=asked.flag("normalize"))

    def against(state: RegistryState) -> tuple[list[SubjectVersion], str]:
        level = str(state.config(subject)["compatibilityLevel"])
        if number is not None:
            return [decisions.version_of(state, subject, number)], level
        earlier = state.versions(subject)
        return earlier if level.endswith("_TRANSITIVE") else earlier[-1:], level

    earlier, level = registry.query(against, fresh=False)
    messages = decisions.compared_with(candidate.parsed, reversed(earlier), level, registry.parsed)
    found: dict[str, Any] = {"is_compatible": not messages}
    if asked.flag("verbose"):
        found["messages"] = messages
    return found


def config(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /config` and `GET /config/{subject}`."""
    scope = asked.scope()
    if scope is None or asked.flag("defaultToGlobal"):
        return registry.query(lambda state: state.config(scope or ""))
    own = registry.query(lambda state: state.configs.get(scope))
    if own is None:
        raise RegistryRefused(
            refusal.LEVEL_NOT_CONFIGURED,
            f"Subject '{scope}' does not have subject-level compatibility configured",
        )
    return dict(own)


def put_config(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `PUT /config` and `PUT /config/{subject}`."""
    scope, given = asked.scope(), asked.document()
    return registry.change(lambda state, _: decisions.put_config(state, scope, given))


def delete_config(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `DELETE /config` and `DELETE /config/{subject}`."""
    scope = asked.scope()
    return registry.change(lambda state, _: decisions.delete_config(state, scope))


def mode(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /mode` and `GET /mode/{subject}`."""
    scope = asked.scope()
    if scope is None or asked.flag("defaultToGlobal"):
        return {"mode": registry.query(lambda state: state.mode(scope or ""))}
    own = registry.query(lambda state: state.modes.get(scope))
    if own is None:
        raise RegistryRefused(
            refusal.MODE_NOT_CONFIGURED,
            f"Subject '{scope}' does not have subject-level mode configured",
        )
    return {"mode": own}


def put_mode(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `PUT /mode` and `PUT /mode/{subject}`."""
    scope, given, force = asked.scope(), asked.document().get("mode"), asked.flag("force")
    return registry.change(lambda state, _: decisions.put_mode(state, scope, given, force=force))


def delete_mode(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `DELETE /mode` and `DELETE /mode/{subject}`."""
    scope = asked.scope()
    return registry.change(lambda state, _: decisions.delete_mode(state, scope))


def root(registry: SchemaRegistry, asked: ApiRequest) -> Any:
    """Answer `GET /`."""
    return {}


def _version(registry: SchemaRegistry, asked: ApiRequest) -> SubjectVersion:
    subject, number, deleted = asked.subject(), asked.version(), asked.flag("deleted")
    return registry.query(
        lambda state: decisions.version_of(state, subject, number, deleted=deleted)
    )


def _context(asked: ApiRequest) -> str:
    return context_of(asked.query.get("subject", ""))


def _content(registry: SchemaRegistry, asked: ApiRequest) -> SchemaContent:
    """Return the schema of an id, in the context of the query's subject."""
    schema_id, context = asked.schema_id(), _context(asked)
    found = registry.content(context, schema_id)
    if found is None:
        raise RegistryRefused(refusal.SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
    return found


def _content_of_guid(registry: SchemaRegistry, guid: str) -> SchemaContent:
    found = registry.content_of_guid(guid)
    if found is None:
        raise RegistryRefused(refusal.SCHEMA_NOT_FOUND, f"Schema {guid[:40]} not found")
    return found


def _uses(registry: SchemaRegistry, asked: ApiRequest) -> list[SubjectVersion]:
    schema_id, context, deleted = asked.schema_id(), _context(asked), asked.flag("deleted")
    _, name = split_subject(asked.query.get("subject", ""))
    wanted = qualified(context, name) if name else None
    found = registry.query(lambda state: state.uses(context, schema_id))
    if not found:
        raise RegistryRefused(refusal.SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
    return [one for one in found if (deleted or not one.deleted) and wanted in (None, one.subject)]


def _text(registry: SchemaRegistry, content: SchemaContent, asked: ApiRequest) -> str:
    if content.schema_type == PROTOBUF and asked.query.get("format") == SERIALIZED:
        parsed: ParsedSchema = registry.parsed(content)
        return str(parsed.schema.serialized)
    return content.text
