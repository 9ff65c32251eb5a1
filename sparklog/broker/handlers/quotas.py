"""DescribeClientQuotas (48) and AlterClientQuotas (49). Source: KIP-546.

Each broker applies the quotas of its newest metadata image (`network.quotas`).
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Any

from sparklog.broker.handlers.request_parts import decide_each, refusing
from sparklog.broker.handlers.responses import NO_THROTTLE, error_fields, named_twice
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes as client_quotas
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.quotas import CLIENT_ID, IP, USER, QuotaEntity, entity_of, ip_name
from sparklog.protocol.messages.builder import ResponseBuilder


class Match(IntEnum):
    """The condition of a filter component on an entity's name."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class UnsupportedEntityType(InvalidRequest):
    """A filter names an entity type that has no quotas."""

    kafka_code = 35


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the quotas of every entity that matches the filter (48)."""
    answer = ResponseBuilder.to(request)
    error: SparklogError | None = None
    entries: tuple[Any, ...] | None = None
    try:
        wanted = _filter(request)
    except SparklogError as refused:
        error = refused
    else:
        entries = tuple(
            answer.entity(
                "EntryData",
                entity=_entity_of(answer, entity),
                values=tuple(answer.entity("ValueData", key=k, value=v) for k, v in values.items()),
            )
            for entity, values in node.metadata.image.client_quotas.items()
            if _passes(dict(entity), wanted, strict=request.strict)
        )
    return answer.response(
        throttle_time=NO_THROTTLE,
        entries=entries,
        **error_fields(error),
    )


async def alter(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Set and remove quotas: for each entity all changes or none (49)."""
    answer = ResponseBuilder.to(request)
    decisions: dict[int, Decision] = {}
    seen: set[QuotaEntity] = set()
    for number, entry in enumerate(request.entries):
        decisions[number] = _decision(entry, seen)
    decided = await decide_each(node.metadata, decisions, validate_only=request.validate_only)
    return answer.response(
        throttle_time=NO_THROTTLE,
        entries=tuple(
            answer.entity(
                "EntryData",
                entity=_entity_of(answer, _named(entry)),
                **error_fields(decided.refused.get(number)),
            )
            for number, entry in enumerate(request.entries)
        ),
    )


def _decision(entry: Any, seen: set[QuotaEntity]) -> Decision:
    parts = _named(entry)
    try:
        entity = entity_of(dict(parts))
    except SparklogError as refused:
        return refusing(refused)
    if len(entity) != len(parts) or entity in seen:
        return refusing(named_twice("entity", str(parts)))
    seen.add(entity)
    changes = {op.key: None if op.remove else float(op.value) for op in entry.ops}
    if len(changes) != len(entry.ops):
        return refusing(named_twice("quota", str(parts)))
    return partial(client_quotas.alter, entity=entity, changes=changes)


def _named(entry: Any) -> QuotaEntity:
    return tuple((part.entity_type, part.entity_name) for part in entry.entity)


def _entity_of(answer: ResponseBuilder, entity: QuotaEntity) -> tuple[Any, ...]:
    return tuple(
        answer.entity("EntityData", entity_type=kind, entity_name=name) for kind, name in entity
    )


def _filter(request: Any) -> dict[str, tuple[Match, str | None]]:
    wanted: dict[str, tuple[Match, str | None]] = {}
    for component in request.components:
        kind, match = component.entity_type, component.match_type
        if kind in wanted:
            raise named_twice("entity_type", kind)
        if match not in Match.__members__.values() or (match == Match.EXACT) == (
            component.match is None
        ):
            raise InvalidRequest(
                "a filter asks for a name (0), the default (1) or any (2). "
                f"match_type={match} match={component.match!r}"
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedEntityType(
                f"the types are {USER}, {CLIENT_ID} and {IP}. entity_type={kind!r}"
            )
        is_address = kind == IP and component.match is not None
        wanted[kind] = Match(match), ip_name(component.match) if is_address else component.match
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("a filter of an IP address has neither a user nor a client id.")
    return wanted


def _passes(
    entity: dict[str, str | None], wanted: dict[str, tuple[Match, str | None]], *, strict: bool
) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    for kind, (match, name) in wanted.items():
        if kind not in entity:
            return False
        if match != Match.ANY and entity[kind] != (name if match == Match.EXACT else None):
            return False
    return True
