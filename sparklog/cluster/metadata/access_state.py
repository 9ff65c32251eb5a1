"""ACLs, users and delegation tokens of an image, while records change them.

A part that no record changes stays the same object, so readers compare parts by identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sparklog.cluster.metadata.records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from sparklog.core.errors import InvalidRequest
from sparklog.security.acls import AclBinding, checked_binding
from sparklog.security.principal import parse_principal
from sparklog.security.sasl.credentials import ScramCredential, ScramCredentials, ScramMechanism
from sparklog.security.sasl.delegation_tokens import DelegationToken, Tokens

AccessRecord = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


class AccessParts(Protocol):
    """The parts of an image that decide about access."""

    @property
    def acls(self) -> Mapping[str, AclBinding]:
        """Return the ACLs by id."""

    @property
    def scram_credentials(self) -> ScramCredentials:
        """Return the credentials by user and mechanism."""

    @property
    def tokens(self) -> Tokens:
        """Return the delegation tokens by id."""


class AccessChange:
    """Mutable access parts. It copies a changed part once."""

    def __init__(self, before: AccessParts) -> None:
        """Begin with the parts of an image."""
        self._before = before
        self._acls: dict[str, AclBinding] | None = None
        self._users: dict[str, Mapping[ScramMechanism, ScramCredential]] | None = None
        self._tokens: dict[str, DelegationToken] | None = None

    @property
    def acls(self) -> Mapping[str, AclBinding]:
        """Return the ACLs in their present state."""
        return self._before.acls if self._acls is None else self._acls

    @property
    def scram_credentials(self) -> ScramCredentials:
        """Return the credentials in their present state."""
        return self._before.scram_credentials if self._users is None else self._users

    @property
    def tokens(self) -> Tokens:
        """Return the tokens in their present state."""
        return self._before.tokens if self._tokens is None else self._tokens

    def apply(self, record: AccessRecord) -> bool:
        """Apply one record; return False if a newer version has written it."""
        try:
            match record:
                case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                    self._acl(record)
                case DelegationTokenRecord() | RemoveDelegationTokenRecord():
                    self._token(record)
                case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
                    return self._scram_credential(record)
        except InvalidRequest:  # an operation, a pattern or a principal of a newer version
            return False
        return True

    def _acl(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        if self._acls is None:
            self._acls = dict(self._before.acls)
        self._acls.pop(record.acl_id, None)
        if isinstance(record, AccessControlEntryRecord):
            self._acls[record.acl_id] = acl_of(record)

    def _token(self, record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
        if self._tokens is None:
            self._tokens = dict(self._before.tokens)
        self._tokens.pop(record.token_id, None)
        if isinstance(record, DelegationTokenRecord):
            self._tokens[record.token_id] = token_of(record)

    def _scram_credential(
        self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord
    ) -> bool:
        if record.mechanism not in ScramMechanism.__members__.values():
            return False
        if self._users is None:
            self._users = dict(self._before.scram_credentials)
        mechanism = ScramMechanism(record.mechanism)
        own = dict(self._users.pop(record.name, {}))
        own.pop(mechanism, None)
        if isinstance(record, UserScramCredentialRecord):
            own[mechanism] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )
        if own:
            self._users[record.name] = own
        return True


def acl_of(record: AccessControlEntryRecord) -> AclBinding:
    """Return the ACL of a record.

    Raises:
        InvalidRequest: this version does not know one of its codes.
    """
    return checked_binding(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def acl_record(acl_id: str, acl: AclBinding) -> AccessControlEntryRecord:
    """Return the record of an ACL."""
    return AccessControlEntryRecord(
        acl_id,
        int(acl.resource_type),
        acl.resource_name,
        int(acl.pattern_type),
        str(acl.principal),
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """Return the token of a record.

    Raises:
        InvalidRequest: a principal has another form than `kind:name`.
    """
    return DelegationToken(
        record.token_id,
        parse_principal(record.owner),
        parse_principal(record.requester),
        tuple(parse_principal(text) for text in record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """Return the record of a token."""
    return DelegationTokenRecord(
        token.token_id,
        str(token.owner),
        str(token.requester),
        tuple(map(str, token.renewers)),
        token.issue_ms,
        token.max_ms,
        token.expiry_ms,
    )
