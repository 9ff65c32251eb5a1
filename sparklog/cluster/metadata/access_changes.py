"""Decisions about ACLs and users: an image in, records out, or a clear error. Pure."""

from __future__ import annotations

from sparklog.cluster.metadata.access_state import acl_record
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
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
        return [acl_record(acl_id, acl)]


class AclDeletion:
    """The ACLs of an image, and those that several filters delete of them."""

    def __init__(self, image: MetadataImage) -> None:
        """Begin with the ACLs of `image`."""
        self._acls = image.acls
        self.deleted: dict[str, AclBinding] = {}
        """The ACLs that the filters matched so far, by id."""

    def delete(self, wanted: AclFilter) -> tuple[list[Record], list[AclBinding]]:
        """Return the records that delete what a filter matches, and the ACLs it matches.

        An ACL that an earlier filter matched needs no second record.
        """
        matching = {acl_id: acl for acl_id, acl in self._acls.items() if wanted.matches(acl)}
        gone = [acl_id for acl_id in matching if acl_id not in self.deleted]
        self.deleted.update(matching)
        return [RemoveAccessControlEntryRecord(one) for one in gone], list(matching.values())


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


class UserChanges:
    """The users of an image, and changes of them that one request makes together."""

    def __init__(self, image: MetadataImage) -> None:
        """Begin with the users of `image`. Cost: one look at each name."""
        self._credentials = image.scram_credentials
        self._names = set(image.scram_credentials)

    def set(
        self, name: str, mechanism: ScramMechanism, credential: ScramCredential
    ) -> list[Record]:
        """Return the record that gives a user a credential.

        Raises:
            UnacceptableCredential: the name is not a user's, or the cluster has too many users.
        """
        check_user_name(name)
        if name not in self._names and len(self._names) >= USERS_MAX:
            raise UnacceptableCredential(f"the cluster has too many users. most={USERS_MAX}")
        self._names.add(name)
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

    def delete(self, name: str, mechanism: ScramMechanism) -> list[Record]:
        """Return the record that deletes a user's credential.

        Raises:
            ResourceNotFound: the user has no such credential.
        """
        if mechanism not in self._credentials.get(name, {}):
            raise ResourceNotFound(
                "the user has no such credential. "
                f"user={name[:USER_CHARS_MAX]!r} mechanism={mechanism.sasl_name}"
            )
        return [RemoveUserScramCredentialRecord(name, int(mechanism))]
