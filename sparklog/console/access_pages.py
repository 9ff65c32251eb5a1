"""Pages of access: users, ACLs, quotas, and which rule decides about one operation.

The decision is that of the brokers' own authorizer on the ACLs that the user of the page may see.
Brokers have super users and a default besides, which are settings of each broker.
"""

from __future__ import annotations

from typing import Any, Final

from sparklog.console.cluster_view import ClusterView
from sparklog.console.name_filter import FILTER, matching_names
from sparklog.console.resources import PAGE, BoundedValues, FieldSpec, PageResource, RowPage
from sparklog.core.errors import InvalidRequest, SecurityDisabled
from sparklog.core.quotas import IP_QUOTA_KEYS, QUOTA_KEYS, Quotas
from sparklog.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.authorizer import Authorizer
from sparklog.security.principal import parse_principal

USER_ROWS: Final = 100
ACL_ROWS: Final = 100
RESOURCES: Final = tuple(one.name.lower() for one in OPERATIONS)
OPERATION_NAMES: Final = tuple(
    one.name.lower() for one in AclOperation if one is not AclOperation.ANY
)
PATTERNS: Final = ("literal", "prefixed")
PERMISSIONS: Final = ("allow", "deny")
ANY_ADDRESS: Final = "*"
DEFAULT_ENTITY: Final = "(default)"
"""Stands for all users, client ids or addresses without a quota of their own."""

USERS_PARAMETERS: Final = (FILTER, PAGE)


def list_users(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of users with their mechanisms, and all quotas."""
    with view.administered() as admin:
        users = admin.users()
        quotas = admin.client_quotas()
    names = matching_names(sorted(users), values.text("filter"))
    page = RowPage.of(len(names), values.whole("page"), USER_ROWS)
    shown = names[page.first : page.first + USER_ROWS]
    return {
        **page.document(),
        "filter": values.text("filter"),
        "users": [
            {
                "user": name,
                "mechanisms": [
                    {"name": mechanism.sasl_name, "iterations": iterations}
                    for mechanism, iterations in sorted(users[name].items())
                ],
            }
            for name in shown
        ],
        "quotas": _quota_rows(quotas),
        "quotaNames": [*QUOTA_KEYS, *IP_QUOTA_KEYS],
    }


def _quota_rows(quotas: Quotas) -> list[dict[str, Any]]:
    return [
        {
            "entity": {kind: DEFAULT_ENTITY if name is None else name for kind, name in entity},
            "limits": dict(limits),
        }
        for entity, limits in sorted(quotas.items(), key=lambda item: str(item[0]))
    ][:ACL_ROWS]


ACLS_PARAMETERS: Final = (
    FieldSpec("principal", "only ACLs of this principal, and to ask about", length_max=300),
    FieldSpec("resource", "only this type of resource", choices=RESOURCES),
    FieldSpec("name", "only ACLs that match this name", length_max=249),
    FieldSpec("operation", "ask whether the principal may do this", choices=OPERATION_NAMES),
    FieldSpec("host", "ask for this address", length_max=64, default="127.0.0.1"),
    PAGE,
)


def list_acls(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of ACLs; with an operation also which rule decides about it."""
    disabled = None
    acls: list[AclBinding] = []
    try:
        with view.administered() as admin:
            acls = admin.acls()
    except SecurityDisabled as error:
        disabled = str(error)
    chosen = [acl for acl in acls if _is_wanted(acl, values)]
    page = RowPage.of(len(chosen), values.whole("page"), ACL_ROWS)
    return {
        **page.document(),
        **{name: values.text(name) for name in ("principal", "resource", "name", "operation")},
        "host": values.text("host"),
        "resources": list(RESOURCES),
        "operations": {
            kind.name.lower(): [one.name.lower() for one in known]
            for kind, known in OPERATIONS.items()
        },
        "disabled": disabled,
        "acls": [acl_document(acl) for acl in chosen[page.first : page.first + ACL_ROWS]],
        "decision": _decision(acls, values) if values.text("operation") else None,
    }


def _is_wanted(acl: AclBinding, values: BoundedValues) -> bool:
    principal, resource, name = (values.text(n) for n in ("principal", "resource", "name"))
    return (
        principal in ("", str(acl.principal))
        and resource in ("", acl.resource_type.name.lower())
        and (not name or acl.matches_resource(name))
    )


def _decision(acls: list[AclBinding], values: BoundedValues) -> dict[str, Any]:
    resource = ResourceType[(values.text("resource") or "topic").upper()]
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER else values.text("name")
    operation = AclOperation[values.text("operation").upper()]
    if not values.text("principal") or not name:
        raise InvalidRequest("to ask about an operation, give a principal and a name")
    if operation not in OPERATIONS[resource]:
        known = ", ".join(one.name.lower() for one in OPERATIONS[resource])
        raise InvalidRequest(f"a {resource.name.lower()} has the operations {known}")
    principal = parse_principal(values.text("principal"))
    found = Authorizer(acls).authorize(principal, values.text("host"), operation, resource, name)
    return {"allowed": found.allowed, "rule": found.rule}


def acl_document(acl: AclBinding) -> dict[str, Any]:
    """Return an ACL as JSON values, under the names of the change's fields."""
    return {
        "principal": str(acl.principal),
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower(),
        "resource": acl.resource_type.name.lower(),
        "name": acl.resource_name,
        "pattern": acl.pattern_type.name.lower(),
        "host": acl.host,
    }


ACL_FIELDS: Final = (
    FieldSpec("principal", "kind:name, such as User:ann", required=True, length_max=300),
    FieldSpec("permission", "its effect", choices=PERMISSIONS, default="allow"),
    FieldSpec("operation", "the operation", choices=OPERATION_NAMES, required=True),
    FieldSpec("resource", "type of the resource", choices=RESOURCES, required=True),
    FieldSpec("name", "its name; * for each; not for the cluster", length_max=249),
    FieldSpec("pattern", "how the name is meant", choices=PATTERNS, default="literal"),
    FieldSpec("host", "address or network", length_max=64, default=ANY_ADDRESS),
)


def acl_of(values: BoundedValues) -> AclBinding:
    """Return the ACL that the fields describe. Raises InvalidRequest."""
    resource = ResourceType[values.text("resource").upper()]
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER else values.text("name")
    if not name:
        raise InvalidRequest("name is needed: the resource's name, or * for each")
    return AclBinding(
        resource,
        name,
        PatternType[values.text("pattern").upper()],
        parse_principal(values.text("principal")),
        values.text("host"),
        AclOperation[values.text("operation").upper()],
        AclPermission[values.text("permission").upper()],
    )


PAGES: Final = (
    PageResource(
        "/users", "users", "List users and quotas.", "users.html", list_users, USERS_PARAMETERS
    ),
    PageResource(
        "/acls", "acls", "List ACLs, and ask which rule decides.", "acls.html", list_acls,
        ACLS_PARAMETERS,
    ),
)  # fmt: skip
