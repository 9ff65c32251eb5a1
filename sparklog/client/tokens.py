"""Creates, describes, renews and expires delegation tokens. Source: KIP-48, KIP-373.

The HMAC of a token is as good as a password, so the connection should have TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.protocol.api_keys import Api
from sparklog.security.principal import Principal
from sparklog.security.sasl.delegation_tokens import DelegationToken, IssuedToken

VERSIONS: Final = (1, 3)
CHANGE_VERSIONS: Final = (1, 2)
BROKERS_LIMIT_MS: Final = -1
"""As a period: the brokers' own limit."""
AT_ONCE_MS: Final = -1
"""As a period of an expiry: the token is removed at once."""
_OWNER_VERSION: Final = 3
"""The first version in which a client creates tokens of another owner."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def create_token(
    brokers: BrokerConnections,
    owner: Principal | None,
    renewers: Iterable[Principal],
    lifetime_ms: int,
) -> IssuedToken:
    """Create a token. Raises as `Admin.create_token`."""
    given = tuple(renewers)

    def draft(of: RequestDraft) -> Any:
        return of.request(
            owner_principal_type=None if owner is None else owner.kind,
            owner_principal_name=None if owner is None else owner.name,
            renewers=tuple(
                of.part("CreatableRenewers", principal_type=one.kind, principal_name=one.name)
                for one in given
            ),
            max_lifetime=timedelta(milliseconds=lifetime_ms),
        )

    lowest = VERSIONS[0] if owner is None else _OWNER_VERSION
    answer = brokers.change(Api.CREATE_DELEGATION_TOKEN, lowest, VERSIONS[1], draft)
    _check(answer, "the token was not created", owner=owner)
    own = Principal(answer.principal_type, answer.principal_name)
    return IssuedToken(
        DelegationToken(
            answer.token_id,
            own,
            _requester(answer, own),
            given,
            _milliseconds(answer.issue_timestamp),
            _milliseconds(answer.max_timestamp),
            _milliseconds(answer.expiry_timestamp),
        ),
        bytes(answer.hmac),
    )


def read_tokens(
    brokers: BrokerConnections, owners: Iterable[Principal] | None
) -> list[IssuedToken]:
    """Return the tokens that the client may see. Raises as `Admin.tokens`."""
    given = None if owners is None else tuple(owners)

    def draft(of: RequestDraft) -> Any:
        return of.request(
            owners=None
            if given is None
            else tuple(
                of.part(
                    "DescribeDelegationTokenOwner", principal_type=one.kind, principal_name=one.name
                )
                for one in given
            )
        )

    answer = brokers.ask(Api.DESCRIBE_DELEGATION_TOKEN, *VERSIONS, draft)
    _check(answer, "the tokens could not be read")
    return [_issued(one) for one in answer.tokens]


def renew_token(brokers: BrokerConnections, token_hmac: bytes, period_ms: int) -> int:
    """Renew a token. Raises as `Admin.renew_token`."""
    period = timedelta(milliseconds=period_ms)
    return _changed(
        brokers,
        Api.RENEW_DELEGATION_TOKEN,
        lambda of: of.request(hmac=token_hmac, renew_period=period),
        "the token was not renewed",
    )


def expire_token(brokers: BrokerConnections, token_hmac: bytes, period_ms: int) -> int:
    """Expire a token. Raises as `Admin.expire_token`."""
    period = timedelta(milliseconds=period_ms)
    return _changed(
        brokers,
        Api.EXPIRE_DELEGATION_TOKEN,
        lambda of: of.request(hmac=token_hmac, expiry_time_period=period),
        "the token did not expire",
    )


def _changed(
    brokers: BrokerConnections, api: Api, draft: Callable[[RequestDraft], Any], doing: str
) -> int:
    answer = brokers.change(api, *CHANGE_VERSIONS, draft)
    _check(answer, doing)
    return _milliseconds(answer.expiry_timestamp)


def _issued(answer: Any) -> IssuedToken:
    owner = Principal(answer.principal_type, answer.principal_name)
    token = DelegationToken(
        answer.token_id,
        owner,
        _requester(answer, owner),
        tuple(Principal(one.principal_type, one.principal_name) for one in answer.renewers),
        int(answer.issue_timestamp),
        int(answer.max_timestamp),
        int(answer.expiry_timestamp),
    )
    return IssuedToken(token, bytes(answer.hmac))


def _requester(answer: Any, owner: Principal) -> Principal:
    """Return the requester of a token; versions before 3 have only owners that request."""
    if not hasattr(answer, "token_requester_principal_name"):
        return owner
    return Principal(answer.token_requester_principal_type, answer.token_requester_principal_name)


def _check(answer: Any, doing: str, **variables: Any) -> None:
    if answer.error_code != 0:
        raise of_code(answer.error_code, None, doing, **variables)


def _milliseconds(instant: datetime | None) -> int:
    return -1 if instant is None else (instant - _EPOCH) // _MILLISECOND
