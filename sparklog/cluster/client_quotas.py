"""Decisions about client quotas: an image in, records out, or a clear error. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import ClientQuotaRecord, Record
from sparklog.core.client_quotas import QuotaEntity, check_quota, check_quota_key


def alter(
    image: MetadataImage, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> list[Record]:
    """Return the records that set some quotas of an entity and remove others.

    A quota that a newer version has set stays; a change may remove it by its name.

    Args:
        image: the newest image.
        entity: as `entity_of` returns it.
        changes: new values by quota; None removes one.

    Raises:
        InvalidRequest: unknown quota, or a value that is not a rate.
    """
    own = image.client_quotas.get(entity, {})
    records: list[Record] = []
    for key, value in changes.items():
        if value is not None:
            check_quota(key, value)
        elif key not in own:
            check_quota_key(key)
        if own.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, value))
    return records
