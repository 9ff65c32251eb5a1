"""Reads and changes settings of topics, brokers and groups. Source: KIP-226, KIP-339, KIP-1142.

The module also reads and changes client quotas. Source: KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft, sole
from sparklog.client.errors import of_code
from sparklog.client.metadata import read_metadata
from sparklog.client.values import ConfigResource, ConfigValue
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.config.describe import CREATED_BY, ConfigSource
from sparklog.core.errors import InvalidRequest
from sparklog.core.quotas import QuotaEntity, entity_of
from sparklog.protocol.api_keys import Api

DESCRIBE_VERSIONS: Final = (1, 4)
ALTER_VERSIONS: Final = (0, 1)
LIST_VERSIONS: Final = (1, 1)

_NUMBERS: Final = {ConfigResource.TOPIC: 2, ConfigResource.BROKER: 4, ConfigResource.GROUP: 32}
_SET: Final = 0
_DELETE: Final = 1


def read_configs(
    brokers: BrokerConnections, kind: ConfigResource, names: Sequence[str]
) -> dict[str, list[ConfigValue]]:
    """Return all settings, by the resource's name or id. Raises as `Admin.configs`."""

    def draft_of(chosen: Sequence[str]) -> Any:
        def draft(of: RequestDraft) -> Any:
            resources = tuple(
                of.part(
                    "DescribeConfigsResource",
                    resource_type=_NUMBERS[kind],
                    resource_name=name,
                    configuration_keys=None,
                )
                for name in chosen
            )
            return of.request(
                resources=resources, include_synonyms=True, include_documentation=False
            )

        return draft

    if kind is not ConfigResource.BROKER or EVERY_BROKER in names:
        answers = [brokers.ask(Api.DESCRIBE_CONFIGS, *DESCRIBE_VERSIONS, draft_of(names))]
    else:
        answers = [
            brokers.tell(where, Api.DESCRIBE_CONFIGS, *DESCRIBE_VERSIONS, draft_of([name]))
            for name, where in _listening(brokers, names).items()
        ]
    found = {}
    for answer in answers:
        for result in answer.results:
            if result.error_code != 0:
                raise of_code(
                    result.error_code,
                    result.error_message,
                    "settings could not be read",
                    **{kind.value: result.resource_name},
                )
            found[result.resource_name] = [_config_value(config) for config in result.configs]
    return found


def read_creators(brokers: BrokerConnections, names: Sequence[str]) -> dict[str, str]:
    """Return the principals that created topics. Raises as `Admin.topic_creators`."""

    def draft(of: RequestDraft) -> Any:
        resources = tuple(
            of.part(
                "DescribeConfigsResource",
                resource_type=_NUMBERS[ConfigResource.TOPIC],
                resource_name=name,
                configuration_keys=(CREATED_BY,),
            )
            for name in names
        )
        return of.request(resources=resources, include_synonyms=False, include_documentation=False)

    answer = brokers.ask(Api.DESCRIBE_CONFIGS, *DESCRIBE_VERSIONS, draft)
    return {
        result.resource_name: config.value
        for result in answer.results
        for config in result.configs
        if result.error_code == 0 and config.name == CREATED_BY and config.value
    }


def change_configs(
    brokers: BrokerConnections,
    kind: ConfigResource,
    name: str,
    values: Mapping[str, str],
    remove: Iterable[str],
) -> None:
    """Set some settings and reset others. Raises as `Admin.alter_configs`."""
    changes: list[tuple[str, int, str | None]] = [
        (key, _SET, value) for key, value in values.items()
    ]
    changes += [(key, _DELETE, None) for key in remove]

    def draft(of: RequestDraft) -> Any:
        resource = of.part(
            "AlterConfigsResource",
            resource_type=_NUMBERS[kind],
            resource_name=name,
            configs=tuple(
                of.part("AlterableConfig", name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ),
        )
        return of.request(resources=(resource,), validate_only=False)

    api = Api.INCREMENTAL_ALTER_CONFIGS
    if kind is not ConfigResource.BROKER or name == EVERY_BROKER:
        answer = brokers.change(api, *ALTER_VERSIONS, draft)
    else:
        where = _listening(brokers, [name])[name]
        answer = brokers.tell(where, api, *ALTER_VERSIONS, draft)
    result = sole(answer.responses, api)
    if result.error_code != 0:
        raise of_code(
            result.error_code,
            result.error_message,
            "settings were not changed",
            **{kind.value: name},
        )


def groups_with_configs(brokers: BrokerConnections) -> list[str]:
    """Return the groups with settings of their own. Raises as `Admin.groups_with_configs`."""
    kind = _NUMBERS[ConfigResource.GROUP]
    answer = brokers.ask(
        Api.LIST_CONFIG_RESOURCES, *LIST_VERSIONS, lambda of: of.request(resource_types=(kind,))
    )
    if answer.error_code != 0:
        raise of_code(answer.error_code, None, "what has settings could not be listed")
    return sorted(one.resource_name for one in answer.config_resources)


def _listening(brokers: BrokerConnections, ids: Sequence[str]) -> dict[str, BrokerAddress]:
    """Return the addresses of these brokers: each knows its own settings."""
    serving = {
        str(broker_id): broker.address
        for broker_id, broker in read_metadata(brokers, ()).brokers.items()
    }
    unknown = [broker_id for broker_id in ids if broker_id not in serving]
    if unknown:
        raise InvalidRequest(
            f"no such broker serves; `sparklog brokers` lists them. brokers={','.join(unknown)}"
        )
    return {broker_id: serving[broker_id] for broker_id in ids}


def _config_value(config: Any) -> ConfigValue:
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        sensitive=bool(config.is_sensitive),
        synonyms=tuple((_source(s.source), s.name, s.value) for s in config.synonyms),
    )


def _source(number: int) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return "UNKNOWN_CONFIG"


VERSIONS: Final = (0, 1)


def read_quotas(brokers: BrokerConnections) -> dict[QuotaEntity, dict[str, float]]:
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
    brokers: BrokerConnections, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
) -> None:
    """Set some quotas and remove others. Raises as `Admin.alter_client_quotas`."""
    entity = entity_of(parts)

    def draft(of: RequestDraft) -> Any:
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
