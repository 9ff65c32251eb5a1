"""Changes of users and ACLs."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from sparklog.console.access_pages import ACL_FIELDS, acl_of
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


ACCESS_CHANGES: Final = (
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
