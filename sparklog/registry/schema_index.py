"""SchemaIndex: the ids and GUIDs that a registry has now, without the texts of the schemas.

Brokers keep it to validate records. It takes some 300 bytes for each version of a subject.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.schema_check import KnownSchemas
from sparklog.registry.model.subjects import DEFAULT_CONTEXT, context_of
from sparklog.registry.records import VersionErased, VersionPut, decode_record

logger = logging.getLogger(__name__)

VERSIONS_MAX: Final = 100_000
"""Bound on versions: some 30 MB. Schemas beyond it are unknown here."""


class _SchemaUse(NamedTuple):
    schema_id: int | None
    """None in a context with ids of its own: records name those by GUID only."""
    guid: bytes


class SchemaIndex:
    """Follows the records of `_schemas`. A soft-deleted version keeps its id. Not thread-safe."""

    def __init__(self) -> None:
        """Begin without a record."""
        self._versions: dict[tuple[str, int], _SchemaUse] = {}
        self._uses: Counter[int | bytes] = Counter()
        """The number of versions that have an id, or a GUID."""

    def apply(self, rows: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Apply the next records; those that are not as they have to be are passed over."""
        for key, value in rows:
            try:
                record = decode_record(key, value)
            except DataCorrupt as error:
                logger.warning("passing over a record: %s", error)
                continue
            if isinstance(record, VersionPut):
                version = record.version
                is_default = context_of(version.subject) == DEFAULT_CONTEXT
                use = _SchemaUse(
                    version.schema_id if is_default else None, UUID(version.content.guid).bytes
                )
                self._put((version.subject, version.version), use)
            elif isinstance(record, VersionErased):
                self._erase((record.subject, record.version))

    def known(self) -> KnownSchemas:
        """Return the ids and GUIDs that versions have now."""
        ids = [one for one in self._uses if isinstance(one, int)]
        return KnownSchemas.of(ids, (one for one in self._uses if isinstance(one, bytes)))

    def _put(self, place: tuple[str, int], use: _SchemaUse) -> None:
        self._erase(place)
        if len(self._versions) >= VERSIONS_MAX:
            logger.error("too many schemas to validate records max=%d", VERSIONS_MAX)
            return
        self._versions[place] = use
        for one in use:
            if one is not None:
                self._uses[one] += 1

    def _erase(self, place: tuple[str, int]) -> None:
        for one in self._versions.pop(place, ()):
            if one is not None:
                self._uses[one] -= 1
                if not self._uses[one]:
                    del self._uses[one]
