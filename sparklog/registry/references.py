"""The schemas that a schema refers to, directly and through others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from sparklog.registry.model.refusal import invalid_schema
from sparklog.registry.model.schema import SchemaContent, SchemaReference, SubjectVersion
from sparklog.registry.state import RegistryState

REACHED_MAX: Final = 500
"""Bound on the schemas that one schema needs."""
LATEST: Final = -1


class VersionSource(Protocol):
    """Gives versions of subjects: a state, or a registry over HTTP."""

    def version(self, subject: str, number: int) -> SubjectVersion | None:
        """Return one version, soft-deleted or not."""


def concrete(state: RegistryState, content: SchemaContent) -> SchemaContent:
    """Return a content whose references name versions, where it says `latest` (-1)."""
    found = []
    for ref in content.references:
        version = ref.version
        if version == LATEST:
            versions = state.versions(ref.subject)
            if not versions:
                raise _missing(ref)
            version = versions[-1].version
        found.append(replace(ref, version=version))
    return replace(content, references=tuple(found))


def referred_texts(versions: VersionSource, content: SchemaContent) -> dict[str, str]:
    """Return the texts of all schemas that a content needs, by the names of the references.

    Each text stands after those that it needs itself.

    Raises:
        RegistryRefused: a reference leads nowhere, one name stands for two schemas, or there are
            too many.
    """
    texts: dict[str, str] = {}
    places: dict[str, tuple[str, int]] = {}
    waiting = [(ref, False) for ref in reversed(content.references)]
    under_way: set[tuple[str, int]] = set()
    while waiting:
        ref, entered = waiting.pop()
        place = (ref.subject, ref.version)
        version = versions.version(*place)
        if version is None:
            raise _missing(ref)
        if entered:
            under_way.discard(place)
            texts[ref.name] = version.content.text
            continue
        known = places.setdefault(ref.name, place)
        if known != place:
            raise invalid_schema(f"one name stands for two schemas: {ref.name[:200]!r}")
        if ref.name in texts:
            continue
        if place in under_way or len(places) > REACHED_MAX:
            raise invalid_schema("references lead back to themselves, or there are too many")
        under_way.add(place)
        waiting.append((ref, True))
        waiting += [(one, False) for one in reversed(version.content.references)]
    return texts


def _missing(ref: SchemaReference) -> Exception:
    return invalid_schema(
        f"no such reference. name={ref.name[:200]!r} subject={ref.subject!r} version={ref.version}"
    )
