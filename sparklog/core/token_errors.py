"""Errors of delegation tokens, with Kafka's codes. They belong to the tree in `core.errors`."""

from __future__ import annotations

from sparklog.core.errors import InvalidRequest


class DelegationTokenError(InvalidRequest):
    """A request about a delegation token was refused."""


class DelegationTokenAuthDisabled(DelegationTokenError):
    """The brokers have no `delegation.token.secret.key`."""

    kafka_code = 61


class DelegationTokenNotFound(DelegationTokenError):
    """No token has this HMAC."""

    kafka_code = 62


class DelegationTokenOwnerMismatch(DelegationTokenError):
    """The client is neither the token's owner nor one of its renewers."""

    kafka_code = 63


class DelegationTokenRequestNotAllowed(DelegationTokenError):
    """The client did not prove its identity, or did it by a token."""

    kafka_code = 64


class DelegationTokenAuthorizationFailed(DelegationTokenError):
    """The client has no right to create tokens of that owner: an ACL has to allow it."""

    kafka_code = 65


class DelegationTokenExpired(DelegationTokenError):
    """The token has expired: create another one."""

    kafka_code = 66


class InvalidPrincipalType(DelegationTokenError):
    """Owners and renewers of tokens are users: `User:name`."""

    kafka_code = 67
