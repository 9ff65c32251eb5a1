"""RegistryState: what the records of `_schemas` add up to.

  REGISTRY-1: an id of a context names one content for ever, and a spent id is never given again
  REGISTRY-2: a version of a subject keeps its id and its content until it is deleted permanently
  REGISTRY-3: the state depends on the records and their order only, so every registry has the same

Not thread-safe; `registry.SchemaRegistry` guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sparklog.registry.model.schema import SchemaContent, SubjectVersion
from sparklog.registry.model.subjects import DEFAULT_CONTEXT, context_of, qualified, split_subject
from sparklog.registry.records import (
    ConfigPut,
    IdsSpent,
    ModePut,
    RegistryRecord,
    VersionErased,
    VersionPut,
    VersionsHidden,
)

FIRST_ID: Final = 1
DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
_ABSENT: Final = object()


class RegistryState:
    """Subjects, ids, settings and modes."""

    def __init__(self) -> None:
        """Start empty: no record was read."""
        self.subjects: dict[str, dict[int, SubjectVersion]] = {}
        """Every version that is not permanently deleted, by subject and number."""
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._contents: dict[str, dict[int, SchemaContent]] = {}
        self._ids: dict[str, dict[str, int]] = {}
        self._uses: dict[tuple[str, int], frozenset[tuple[str, int]]] = {}
        """The subjects and versions that have an id of a context."""
        self._next: dict[str, int] = {}
        self._by_guid: dict[str, frozenset[tuple[str, int]]] = {}
        """The ids that a GUID names, with their contexts."""
        self._referrers: dict[tuple[str, int], frozenset[tuple[str, int]]] = {}
        self._journal: list[tuple[dict[Any, Any], Any, Any]] | None = None

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo every change that is made meanwhile, at the end."""
        assert self._journal is None, "one trial at a time"
        self._journal = []
        try:
            yield
        finally:
            journal, self._journal = self._journal, None
            for mapping, key, before in reversed(journal):
                self._write(mapping, key, before)

    def apply(self, record: RegistryRecord) -> None:
        """Apply the next record."""
        match record:
            case VersionPut(version):
                self._put(version)
            case VersionErased(subject, number):
                self._erase(subject, number)
            case VersionsHidden(subject, last):
                for version in list(self.subjects.get(subject, {}).values()):
                    if version.version <= last and not version.deleted:
                        self._put(hidden(version))
            case ConfigPut(scope, config):
                self._write(self.configs, scope, _ABSENT if config is None else config)
            case ModePut(scope, mode):
                self._write(self.modes, scope, _ABSENT if mode is None else mode)
            case IdsSpent(context, next_id):
                self._write(self._next, context, max(self.next_id(context), next_id))

    def _put(self, version: SubjectVersion) -> None:
        self._erase(version.subject, version.version)
        context, place = context_of(version.subject), (version.subject, version.version)
        schema_id = version.schema_id
        contents = self._inner(self._contents, context)
        content = contents.get(schema_id, version.content)
        if content != version.content:  # a foreign writer broke REGISTRY-1: the first content stays
            version = SubjectVersion(*place, schema_id, content, version.deleted)
        self._write(contents, schema_id, content)
        self._write(self._inner(self.subjects, version.subject), version.version, version)
        ids = self._inner(self._ids, context)
        self._write(ids, content.guid, min(schema_id, ids.get(content.guid, schema_id)))
        self._add(self._by_guid, content.guid, (context, schema_id))
        self._add(self._uses, (context, schema_id), place)
        self._write(self._next, context, max(self.next_id(context), schema_id + 1))
        for ref in content.references:
            self._add(self._referrers, (ref.subject, ref.version), place)

    def _erase(self, subject: str, number: int) -> None:
        version = self.subjects.get(subject, {}).get(number)
        if version is None:
            return
        self._write(self.subjects[subject], number, _ABSENT)
        if not self.subjects[subject]:
            self._write(self.subjects, subject, _ABSENT)
        context, place = context_of(subject), (subject, number)
        for ref in version.content.references:
            self._discard(self._referrers, (ref.subject, ref.version), place)
        self._discard(self._uses, (context, version.schema_id), place)
        if (context, version.schema_id) in self._uses:
            return
        guid = version.content.guid
        self._write(self._contents[context], version.schema_id, _ABSENT)
        self._discard(self._by_guid, guid, (context, version.schema_id))
        others = [n for name, n in self._by_guid.get(guid, ()) if name == context]
        self._write(self._ids[context], guid, min(others) if others else _ABSENT)

    def _write(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((mapping, key, mapping.get(key, _ABSENT)))
        if value is _ABSENT:
            mapping.pop(key, None)
        else:
            mapping[key] = value

    def _inner(self, mapping: dict[Any, Any], key: Any) -> dict[Any, Any]:
        if key not in mapping:
            self._write(mapping, key, {})
        found: dict[Any, Any] = mapping[key]
        return found

    def _add(self, mapping: dict[Any, Any], key: Any, member: tuple[str, int]) -> None:
        self._write(mapping, key, mapping.get(key, frozenset()) | {member})

    def _discard(self, mapping: dict[Any, Any], key: Any, member: tuple[str, int]) -> None:
        rest = mapping.get(key, frozenset()) - {member}
        self._write(mapping, key, rest or _ABSENT)

    def next_id(self, context: str) -> int:
        """Return the lowest id that was never given in a context."""
        return self._next.get(context, FIRST_ID)

    def content(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return the content of an id, soft-deleted or not."""
        return self._contents.get(context, {}).get(schema_id)

    def id_of(self, context: str, guid: str) -> int | None:
        """Return the id of a content in a context."""
        return self._ids.get(context, {}).get(guid)

    def place_of_guid(self, guid: str) -> tuple[str, int] | None:
        """Return a context and the id in it that a GUID names."""
        return min(self._by_guid.get(guid, ()), default=None)

    def uses(self, context: str, schema_id: int) -> list[SubjectVersion]:
        """Return the versions that have an id, in order."""
        places = sorted(self._uses.get((context, schema_id), ()))
        return [self.subjects[subject][number] for subject, number in places]

    def referrers(self, subject: str, number: int) -> list[SubjectVersion]:
        """Return the versions that refer to a version, soft-deleted ones too."""
        places = sorted(self._referrers.get((subject, number), ()))
        return [self.subjects[name][version] for name, version in places]

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions of a subject, in order; `deleted` adds the soft-deleted ones."""
        found = self.subjects.get(subject, {})
        return [found[n] for n in sorted(found) if deleted or not found[n].deleted]

    def version(self, subject: str, number: int) -> SubjectVersion | None:
        """Return one version, soft-deleted or not."""
        return self.subjects.get(subject, {}).get(number)

    def contexts(self) -> list[str]:
        """Return the contexts that have subjects, and the default one."""
        return sorted({DEFAULT_CONTEXT, *map(context_of, self.subjects)})

    def config(self, subject: str) -> dict[str, Any]:
        """Return the settings that hold for a subject: its own, its context's, the registry's."""
        found: dict[str, Any] = {"compatibilityLevel": DEFAULT_LEVEL}
        for scope in reversed(list(_scopes(subject))):
            found.update(self.configs.get(scope, {}))
        return found

    def mode(self, subject: str) -> str:
        """Return the mode that holds for a subject; READONLY of the registry holds everywhere."""
        if self.modes.get(None) in {"READONLY", "READONLY_OVERRIDE"}:
            return self.modes[None]
        found = (self.modes.get(scope) for scope in _scopes(subject))
        return next((mode for mode in found if mode is not None), DEFAULT_MODE)


def hidden(version: SubjectVersion) -> SubjectVersion:
    """Return a version as soft-deleted."""
    return SubjectVersion(
        version.subject, version.version, version.schema_id, version.content, deleted=True
    )


def replayed(records: Iterable[RegistryRecord]) -> RegistryState:
    """Return the state after some records."""
    state = RegistryState()
    for record in records:
        state.apply(record)
    return state


def _scopes(subject: str) -> Iterator[str | None]:
    context, name = split_subject(subject)
    if name:
        yield subject
    if context != DEFAULT_CONTEXT:
        yield qualified(context, "")
    yield None
