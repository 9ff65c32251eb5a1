"""Pages of the schema registry: subjects, and a subject's versions with a diff and compatibility.

They read the topic `_schemas` themselves, so no registry has to run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from sparklog.console.cluster_view import ClusterView
from sparklog.console.name_filter import FILTER, matching_names
from sparklog.console.resources import (
    PAGE,
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
    PageResource,
    RowPage,
)
from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidJson, ResourceNotFound
from sparklog.registry.decisions import put_config
from sparklog.registry.formats.parsed import differences
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import PROTOBUF, SubjectVersion
from sparklog.registry.model.subjects import DEFAULT_CONTEXT
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.state import RegistryState

SUBJECT_ROWS: Final = 50
VERSIONS_SHOWN: Final = 500
REASONS_SHOWN: Final = 50
DIFF_LINES_MAX: Final = 5_000
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
    "NONE",
)  # fmt: skip
VERSION_MAX: Final = 2**31 - 1


def list_subjects(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of subjects, or those that use an id. Cost: one request."""
    only, part = values.text("id"), values.text("filter")

    def found(state: RegistryState) -> tuple[list[str], RowPage, list[dict[str, Any]]]:
        names = list(state.subjects)
        if only:
            names = sorted({one.subject for one in _uses(state, only)})
        names = sorted(matching_names(names, part))
        page = RowPage.of(len(names), values.whole("page"), SUBJECT_ROWS)
        shown = names[page.first : page.first + SUBJECT_ROWS]
        return names, page, [_subject(state, name) for name in shown]

    _, page, rows = view.schemas().query(found)
    return {
        **page.document(),
        "filter": part,
        "id": only,
        "level": view.schemas().query(lambda state: _level(state, ""), fresh=False),
        "subjects": rows,
    }


def _uses(state: RegistryState, given: str) -> list[SubjectVersion]:
    """Return the versions that have an id, or a GUID."""
    place: tuple[str, int] | None
    if given.isascii() and given.isdigit() and len(given) < 11:
        place = (DEFAULT_CONTEXT, int(given))
    else:
        place = state.place_of_guid(given.lower())
    return [] if place is None else state.uses(*place)


def _level(state: RegistryState, subject: str) -> str:
    return str(state.config(subject)["compatibilityLevel"])


def _subject(state: RegistryState, name: str) -> dict[str, Any]:
    versions = state.versions(name, deleted=True)
    latest = versions[-1]
    return {
        "subject": name,
        "type": latest.content.schema_type,
        "versions": len(versions),
        "latest": latest.version,
        "id": latest.schema_id,
        "deleted": all(one.deleted for one in versions),
        "level": _level(state, name),
        "ownLevel": name in state.configs,
    }


def show_subject(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a subject's versions, one of them whole, and how it differs from another.

    Without parameters these are the newest version and the one before it.

    Raises:
        ResourceNotFound: no such subject or version.
    """
    name, registry = values.text("subject"), view.schemas()
    versions, level, mode, own = registry.query(
        lambda state: (
            state.versions(name, deleted=True), _level(state, name), state.mode(name),
            name in state.configs,
        )
    )  # fmt: skip
    if not versions:
        raise ResourceNotFound(f"no such subject. subject={name}")
    shown = _chosen(versions, values.optional_whole("version"), versions[-1])
    assert shown is not None, "there is a version"
    earlier = [one for one in versions if one.version < shown.version]
    against = _chosen(versions, values.optional_whole("against"), earlier[-1] if earlier else None)
    return {
        "subject": name,
        "level": level,
        "ownLevel": own,
        "levels": list(LEVELS),
        "mode": mode,
        "versionCount": len(versions),
        "versions": [
            {"version": one.version, "id": one.schema_id, "deleted": one.deleted}
            for one in versions[::-1][:VERSIONS_SHOWN]
        ],
        **_version(shown),
        "against": None if against is None else against.version,
        "diff": [] if against is None else diff_lines(against, shown),
        "compatibility": None if against is None else compatibility(registry, against, shown),
    }


def _chosen(
    versions: Sequence[SubjectVersion], wanted: int | None, default: SubjectVersion | None
) -> SubjectVersion | None:
    if wanted is None:
        return default
    found = next((one for one in versions if one.version == wanted), None)
    if found is None:
        raise ResourceNotFound(f"the subject has no such version. version={wanted}")
    return found


def _version(one: SubjectVersion) -> dict[str, Any]:
    content = one.content
    return {
        "version": one.version,
        "id": one.schema_id,
        "guid": content.guid,
        "type": content.schema_type,
        "deleted": one.deleted,
        "text": shown_text(one),
        "references": [ref.document() for ref in content.references],
        "metadata": content.metadata,
        "ruleSet": content.rule_set,
    }


def shown_text(version: SubjectVersion) -> str:
    """Return a schema's text, JSON with a field on each line."""
    content = version.content
    if content.schema_type == PROTOBUF:
        return content.text
    try:
        value = parse_json(content.text, "a schema")
    except InvalidJson:  # Avro's name of a primitive type alone
        return content.text
    return json.dumps(value, indent=2, ensure_ascii=False)


def diff_lines(old: SubjectVersion, new: SubjectVersion) -> list[dict[str, str]]:
    """Return the lines of a unified diff, each with its kind: `added`, `removed`, `same`, `at`."""
    kinds = {"+": "added", "-": "removed", "@": "at"}
    lines = unified_diff(
        shown_text(old).splitlines()[:DIFF_LINES_MAX],
        shown_text(new).splitlines()[:DIFF_LINES_MAX],
        f"version {old.version}",
        f"version {new.version}",
        lineterm="",
    )
    named = [{"kind": "at", "text": line} for line in islice(lines, 2)]
    return named + [{"kind": kinds.get(line[:1], "same"), "text": line} for line in lines]


def compatibility(
    registry: SchemaRegistry, old: SubjectVersion, new: SubjectVersion
) -> dict[str, Any]:
    """Return why readers of one version cannot read data of the other; empty lists if they can."""
    try:
        parsed = [registry.parsed(one.content) for one in (old, new)]
        backward = differences(parsed[1], parsed[0])
        forward = differences(parsed[0], parsed[1])
    except RegistryRefused as error:
        return {"backward": [], "forward": [], "problem": str(error)}
    except ImportError:
        words = "comparing needs pip install 'sparklog[registry]'"
        return {"backward": [], "forward": [], "problem": words}
    return {
        "backward": [one.message() for one in backward[:REASONS_SHOWN]],
        "forward": [one.message() for one in forward[:REASONS_SHOWN]],
        "problem": None,
    }


def set_level(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Set the compatibility level of a subject."""
    name, level = values.text("subject"), values.text("level")
    view.schemas().change(lambda state, _: put_config(state, name, {"compatibility": level}))
    return ChangeDone(
        f"Set the compatibility of {name} to {level}.", f"/schemas/{quote(name, safe='')}"
    )


PAGES: Final = (
    PageResource(
        "/schemas", "schemas", "List subjects of the schema registry.", "schemas.html",
        list_subjects, (FILTER, FieldSpec("id", "only subjects that use this id or GUID",
                                          length_max=40), PAGE),
    ),
    PageResource(
        "/schemas/{subject}", "subject", "Show a subject's versions and their differences.",
        "subject.html", show_subject,
        (
            FieldSpec("version", "show this version", "integer", least=1, most=VERSION_MAX),
            FieldSpec("against", "compare with this one", "integer", least=1, most=VERSION_MAX),
        ),
    ),
)  # fmt: skip
SCHEMA_CHANGES: Final = (
    ChangeAction(
        "/schemas/{subject}/compatibility", "setCompatibility",
        "Set the compatibility level of a subject.", ConsoleRole.ADMIN, set_level,
        (FieldSpec("level", "the level", choices=LEVELS, required=True),),
    ),
)  # fmt: skip
