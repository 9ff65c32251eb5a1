"""Deciding changes of clients' quotas: an image in, records out, or a clear refusal. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import ClientQuotaRecord, Record
from sparklog.core.client_quotas import QuotaEntity, check_quota, check_quota_key


def alter(
    image: MetadataImage, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> list[Record]:
    """Return the records that set some quotas of an entity and remove others.

    What a newer version has set stays, and may be removed by its name.

    Args:
        image: what there is.
        entity: whose; as `entity_of` returns it.
        changes: new values by quota; None removes one.

    Raises:
        InvalidRequest: no such quota, or a value that is no rate.
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
