"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31). Source: KIP-140, KIP-290.

Without an authorizer each of them is refused with SECURITY_DISABLED, as by Kafka. Tools that copy
ACLs, as MirrorMaker does, take that for "there are none".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from sparklog.broker.handlers.request_parts import decide_apart
from sparklog.broker.handlers.responses import NO_THROTTLE, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.access_changes import ACLS_MAX, AclDeletion, NewAcls
from sparklog.cluster.metadata.records import Record
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import InvalidRequest, SecurityDisabled, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.security.acls import AclBinding, AclFilter, checked_binding, checked_filter

FILTERS_MAX: Final = 1000
"""Filters of one DeleteAcls request: the broker compares each of them with each ACL."""


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the ACLs that the filter matches, resource by resource (29)."""
    answer = ResponseBuilder.to(request)
    error: SparklogError | None = _disabled(node)
    found: list[AclBinding] = []
    if error is None:
        try:
            wanted = _filter_of(request)
        except InvalidRequest as refused:
            error = refused
        else:
            acls = node.metadata.image.acls.values()
            found = sorted((acl for acl in acls if wanted.matches(acl)), key=_resource_of)
    return answer.response(
        throttle_time=NO_THROTTLE,
        resources=tuple(
            _resource(answer, resource, list(bound))
            for resource, bound in groupby(found, key=_resource_of)
        ),
        **error_fields(error),
    )


async def create(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Create ACLs; an ACL that exists already is no error (30)."""
    answer = ResponseBuilder.to(request)
    too_many = _too_many("ACLs", request.creations, ACLS_MAX)
    refused: dict[int, SparklogError] = {}
    decisions: dict[int, Callable[[NewAcls], list[Record]]] = {}
    for number, creation in enumerate(request.creations):
        error: SparklogError | None = _disabled(node) or too_many
        if error is None:
            try:
                acl = _binding_of(creation)
            except InvalidRequest as wrong:
                error = wrong
            else:
                acl_id = new_topic_id(node.environment.entropy)
                decisions[number] = partial(NewAcls.create, acl=acl, acl_id=acl_id)
        if error is not None:
            refused[number] = error
    if decisions:
        decided = await decide_apart(node.metadata, decisions, NewAcls)
        refused.update(decided.refused)
    results = tuple(
        answer.entity("AclCreationResult", **error_fields(refused.get(number)))
        for number in range(len(request.creations))
    )
    return answer.response(throttle_time=NO_THROTTLE, results=results)


async def delete(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Delete what each filter matches, and return it (31)."""
    answer = ResponseBuilder.to(request)
    too_many = _too_many("filters", request.filters, FILTERS_MAX)
    refused: dict[int, SparklogError] = {}
    matched: dict[int, list[AclBinding]] = {}
    decisions: dict[int, Callable[[AclDeletion], list[Record]]] = {}
    for number, asked in enumerate(request.filters):
        error: SparklogError | None = _disabled(node) or too_many
        if error is None:
            try:
                wanted = _filter_of(asked)
            except InvalidRequest as wrong:
                error = wrong
            else:
                decisions[number] = partial(_delete, number=number, wanted=wanted, matched=matched)
        if error is not None:
            refused[number] = error
    if decisions:
        decided = await decide_apart(node.metadata, decisions, AclDeletion)
        refused.update(decided.refused)
    return answer.response(
        throttle_time=NO_THROTTLE,
        filter_results=tuple(
            _filter_result(answer, refused.get(number), matched.get(number, ()))
            for number in range(len(request.filters))
        ),
    )


def _delete(
    deletion: AclDeletion, *, number: int, wanted: AclFilter, matched: dict[int, list[AclBinding]]
) -> list[Record]:
    records, matched[number] = deletion.delete(wanted)
    return records


def _disabled(node: BrokerNode) -> SecurityDisabled | None:
    if node.config.text("authorizer.class.name"):
        return None
    return SecurityDisabled("no authorizer is configured: each client may do everything.")


def _too_many(what: str, items: Sequence[Any], most: int) -> InvalidRequest | None:
    if len(items) <= most:
        return None
    return InvalidRequest(
        f"the request has too many {what}; send several requests. given={len(items)} most={most}"
    )


def _binding_of(creation: Any) -> AclBinding:
    return checked_binding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _filter_of(asked: Any) -> AclFilter:
    return checked_filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _resource_of(acl: AclBinding) -> tuple[int, str, int]:
    return int(acl.resource_type), acl.resource_name, int(acl.pattern_type)


def _resource(
    answer: ResponseBuilder, resource: tuple[int, str, int], acls: Sequence[AclBinding]
) -> Any:
    resource_type, name, pattern_type = resource
    return answer.entity(
        "DescribeAclsResource",
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        acls=tuple(answer.entity("AclDescription", **_entry(acl)) for acl in acls),
    )


def _filter_result(
    answer: ResponseBuilder, error: SparklogError | None, matched: Sequence[AclBinding]
) -> Any:
    acls = tuple(
        answer.entity(
            "DeleteAclsMatchingAcl",
            resource_type=int(acl.resource_type),
            resource_name=acl.resource_name,
            pattern_type=int(acl.pattern_type),
            **_entry(acl),
            **error_fields(None),
        )
        for acl in (matched if error is None else ())
    )
    return answer.entity("DeleteAclsFilterResult", matching_acls=acls, **error_fields(error))


def _entry(acl: AclBinding) -> Mapping[str, Any]:
    return {
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
