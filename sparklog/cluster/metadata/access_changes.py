"""Decisions about ACLs and users: an image in, records out, or a clear error. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    AccessControlEntryRecord,
    Record,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from sparklog.core.errors import InvalidRequest, ResourceNotFound, UnacceptableCredential
from sparklog.security.acls import AclBinding, AclFilter
from sparklog.security.sasl.credentials import ScramCredential, ScramMechanism

ACLS_MAX = 10_000
"""ACLs of a cluster: each change copies them, and each broker keeps them in memory."""
USERS_MAX = 10_000
USER_CHARS_MAX = 255


class NewAcls:
    """The ACLs of an image, and those that are created on top of it one after the other."""

    def __init__(self, image: MetadataImage) -> None:
        """Begin with the ACLs of `image`. Cost: one look at each of them."""
        self._acls = set(image.acls.values())

    def create(self, acl: AclBinding, acl_id: str) -> list[Record]:
        """Return the record of a new ACL; none if the cluster has the ACL already.

        Raises:
            InvalidRequest: the cluster has too many ACLs.
        """
        if acl in self._acls:
            return []
        if len(self._acls) >= ACLS_MAX:
            raise InvalidRequest(
                f"the cluster has too many ACLs; use prefixes and wildcards. most={ACLS_MAX}"
            )
        self._acls.add(acl)
        return [
            AccessControlEntryRecord(
                acl_id,
                int(acl.resource_type),
                acl.resource_name,
                int(acl.pattern_type),
                str(acl.principal),
                acl.host,
                int(acl.operation),
                int(acl.permission),
            )
        ]


def matching_acls(image: MetadataImage, wanted: AclFilter) -> list[str]:
    """Return the ids of the ACLs that a filter matches."""
    return [acl_id for acl_id, acl in image.acls.items() if wanted.matches(acl)]


def delete_acls(image: MetadataImage, ids: Iterable[str]) -> list[Record]:
    """Return the records that delete ACLs; an ACL that is gone needs none."""
    return [RemoveAccessControlEntryRecord(one) for one in ids if one in image.acls]


def check_user_name(name: str) -> None:
    """Check the name of a user.

    Raises:
        UnacceptableCredential: empty, too long, or with control characters.
    """
    if not name or len(name) > USER_CHARS_MAX or not name.isprintable():
        raise UnacceptableCredential(
            f"a user's name has 1 to {USER_CHARS_MAX} printable characters. "
            f"name={name[:USER_CHARS_MAX]!r}"
        )


def set_credential(
    image: MetadataImage, name: str, mechanism: ScramMechanism, credential: ScramCredential
) -> list[Record]:
    """Return the record that gives a user a credential.

    Raises:
        UnacceptableCredential: the name is not a user's, or the cluster has too many users.
    """
    check_user_name(name)
    if name not in image.scram_credentials and len(image.scram_credentials) >= USERS_MAX:
        raise UnacceptableCredential(f"the cluster has too many users. most={USERS_MAX}")
    return [
        UserScramCredentialRecord(
            name,
            int(mechanism),
            credential.salt,
            credential.stored_key,
            credential.server_key,
            credential.iterations,
        )
    ]


def delete_credential(image: MetadataImage, name: str, mechanism: ScramMechanism) -> list[Record]:
    """Return the record that deletes a user's credential.

    Raises:
        ResourceNotFound: the user has no such credential.
    """
    if mechanism not in image.scram_credentials.get(name, {}):
        raise ResourceNotFound(
            f"the user has no such credential. user={name!r} mechanism={mechanism.sasl_name}"
        )
    return [RemoveUserScramCredentialRecord(name, int(mechanism))]
