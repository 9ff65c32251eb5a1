"""Changes of users, ACLs and quotas."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from sparklog.console.access_pages import ACL_FIELDS, DEFAULT_ENTITY, acl_of
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import (
    CONFIRM,
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
)
from sparklog.core.errors import InvalidRequest
from sparklog.core.quotas import CLIENT_ID, IP, IP_QUOTA_KEYS, QUOTA_KEYS, USER, entity_of
from sparklog.security.acls import AclFilter, check_binding

PASSWORD_CHARS_MAX: Final = 1024


def set_password(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Create a user, or change a password."""
    name = values.text("name")
    with view.administered() as admin:
        admin.set_password(name, values.text("password"))
    return ChangeDone(f"Set the password of user {name}.", "/users")


def delete_user(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete a user's passwords; ACLs of the user stay."""
    name = values.text("user")
    with view.administered() as admin:
        admin.remove_password(name)
    return ChangeDone(f"Deleted user {name}. ACLs of the user stay.", "/users")


def create_acl(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Create one ACL."""
    acl = acl_of(values)
    check_binding(acl)
    with view.administered() as admin:
        admin.create_acls([acl])
    return ChangeDone(
        f"Created the ACL: {acl.permission.name.lower()} {acl.operation.name.lower()} to "
        f"{acl.principal}.",
        f"/acls?principal={quote(str(acl.principal), safe='')}",
    )


def delete_acl(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Delete one ACL, which the fields name completely."""
    acl = acl_of(values)
    wanted = AclFilter(
        acl.resource_type, acl.resource_name, acl.pattern_type, str(acl.principal), acl.host,
        acl.operation, acl.permission,
    )  # fmt: skip
    with view.administered() as admin:
        deleted = admin.delete_acls([wanted])
    if not deleted:
        raise InvalidRequest("there is no such ACL any longer")
    return ChangeDone(f"Deleted {len(deleted)} ACL of {acl.principal}.", "/acls")


def set_quota(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Set one quota of a user, a client id, both, or an IP address; or remove it.

    Raises:
        InvalidRequest: no such entity, or no value that the quota may have.
    """
    given = {USER: "user", CLIENT_ID: "clientId", IP: "ip"}
    parts = {
        kind: None if text == DEFAULT_ENTITY else text
        for kind, field in given.items()
        if (text := values.text(field))
    }
    entity_of(parts)
    name = values.text("name")
    limit = float(values.whole("value")) if values.text("value") else None
    with view.administered() as admin:
        admin.alter_client_quotas(parts, {name: limit})
    spelled = ", ".join(f"{kind} {DEFAULT_ENTITY if n is None else n}" for kind, n in parts.items())
    message = f"Removed {name} of {spelled}." if limit is None else f"Set {name} of {spelled}."
    return ChangeDone(message, "/users#quotas")


ACCESS_CHANGES: Final = (
    ChangeAction(
        "/quotas", "setQuota", "Set or remove a quota.", ConsoleRole.ADMIN, set_quota,
        (
            FieldSpec("user", f"a user, or {DEFAULT_ENTITY} for those without a quota"),
            FieldSpec("clientId", f"a client id, or {DEFAULT_ENTITY}"),
            FieldSpec("ip", f"an IP address, or {DEFAULT_ENTITY}"),
            FieldSpec("name", "the quota", choices=(*QUOTA_KEYS, *IP_QUOTA_KEYS), required=True),
            FieldSpec(
                "value", "its limit at each broker; none removes it", "integer", least=1,
                most=2**53,
            ),
        ),
    ),
    ChangeAction(
        "/users", "setPassword", "Create a user, or change a password.", ConsoleRole.ADMIN,
        set_password,
        (
            FieldSpec("name", "the user", required=True, length_max=249),
            FieldSpec("password", "the password", required=True, length_max=PASSWORD_CHARS_MAX),
        ),
    ),
    ChangeAction(
        "/users/{user}/delete", "deleteUser", "Delete a user.", ConsoleRole.ADMIN, delete_user,
        (CONFIRM,), confirms="user",
    ),
    ChangeAction("/acls", "createAcl", "Create an ACL.", ConsoleRole.ADMIN, create_acl, ACL_FIELDS),
    ChangeAction(
        "/acls/delete", "deleteAcl", "Delete an ACL.", ConsoleRole.ADMIN, delete_acl, ACL_FIELDS
    ),
)  # fmt: skip
