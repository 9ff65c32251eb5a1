"""Reads and changes client quotas. Source: KIP-546."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft, sole
from sparklog.client.errors import of_code
from sparklog.core.client_quotas import QuotaEntity, entity_of
from sparklog.protocol.api import Api

VERSIONS: Final = (0, 1)


def read_quotas(brokers: Brokers) -> dict[QuotaEntity, dict[str, float]]:
    """Return the configured quotas, by entity. Raises as `Admin.client_quotas`."""
    answer = brokers.ask(
        Api.DESCRIBE_CLIENT_QUOTAS, *VERSIONS, lambda of: of.request(components=(), strict=False)
    )
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, "quotas could not be read")
    return {
        _entity(entry.entity): {value.key: float(value.value) for value in entry.values}
        for entry in answer.entries or ()
    }


def change_quotas(
    brokers: Brokers, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
) -> None:
    """Set some quotas and remove others. Raises as `Admin.alter_client_quotas`."""
    entity = entity_of(parts)

    def draft(of: Draft) -> Any:
        entry = of.part(
            "EntryData",
            entity=tuple(of.part("EntityData", entity_type=t, entity_name=n) for t, n in entity),
            ops=tuple(
                of.part("OpData", key=key, value=value or 0.0, remove=value is None)
                for key, value in changes.items()
            ),
        )
        return of.request(entries=(entry,), validate_only=False)

    api = Api.ALTER_CLIENT_QUOTAS
    result = sole(brokers.change(api, *VERSIONS, draft).entries, api)
    if result.error_code != 0:
        raise of_code(
            result.error_code, result.error_message, "quotas were not changed", entity=entity
        )


def _entity(parts: Any) -> QuotaEntity:
    found = ((part.entity_type, part.entity_name) for part in parts)
    return tuple(sorted(found, key=lambda part: part[0]))
