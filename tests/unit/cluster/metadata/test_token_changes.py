"""Delegation tokens as records, in images and snapshots, and the decisions about them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparklog.cluster.metadata import snapshot, token_changes
from sparklog.cluster.metadata.access_state import token_record
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    DelegationTokenRecord,
    Record,
    RemoveDelegationTokenRecord,
    encode,
)
from sparklog.cluster.metadata.token_changes import TokenRequest, create_token, new_token
from sparklog.core.errors import InvalidRequest, PolicyViolation
from sparklog.core.token_errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.delegation_tokens import DelegationToken

ALICE, BOB, EVE = (Principal(USER, name) for name in ("alice", "bob", "eve"))
TOKEN = DelegationToken("id-1", ALICE, BOB, (BOB,), 1000, 9000, 5000)


def applied(image: MetadataImage, *records: Record) -> MetadataImage:
    return image.applied(records, image.end_offset + len(records))


def made(lifetime_ms: int = -1, **more: Any) -> DelegationToken:
    asked = TokenRequest(**{"owner": ALICE, "requester": ALICE, "lifetime_ms": lifetime_ms, **more})
    return new_token(asked, "id", 1000, lifetime_ms=700, expiry_ms=100)


def test_a_token_comes_back_from_its_record_and_from_a_snapshot() -> None:
    (value,) = encode([token_record(TOKEN)]).column("value").to_pylist()
    assert json.loads(value) == {
        "type": "DelegationTokenRecord",
        "tokenId": "id-1",
        "owner": "User:alice",
        "requester": "User:bob",
        "renewers": ["User:bob"],
        "issueTimestamp": 1000,
        "maxTimestamp": 9000,
        "expirationTimestamp": 5000,
    }
    image = MetadataImage().read_on(encode([token_record(TOKEN)]))
    assert dict(image.tokens) == {"id-1": TOKEN}
    restored = snapshot.decode(snapshot.encode(image), image.end_offset)
    assert restored is not None
    assert dict(restored.tokens) == {"id-1": TOKEN}
    assert not restored.strange
    later = applied(image, token_record(replace(TOKEN, expiry_ms=6000)))
    assert later.tokens["id-1"].expiry_ms == 6000
    assert not applied(later, RemoveDelegationTokenRecord("id-1")).tokens


def test_a_record_with_a_malformed_principal_marks_the_image() -> None:
    record = DelegationTokenRecord("id-1", "alice", "User:bob", (), 0, 1, 1)
    image = applied(MetadataImage(), record)
    assert not image.tokens
    assert image.strange


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(-1, 1700, 1100), (0, 1700, 1100), (50, 1050, 1050), (400, 1400, 1100), (900, 1700, 1100)],
)
def test_the_shorter_of_the_lifetimes_counts(asked_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = made(asked_ms)
    assert (token.issue_ms, token.max_ms, token.expiry_ms) == (1000, max_ms, expiry_ms)


def test_owner_and_renewers_are_users_with_bounded_names() -> None:
    group = Principal("Group", "g")
    for more in ({"owner": group}, {"renewers": (BOB, group)}):
        with pytest.raises(InvalidPrincipalType):
            made(**more)
    for name in ("", "a\nb"):
        with pytest.raises(InvalidRequest, match="no name"):
            made(renewers=(Principal(USER, name),))
    with pytest.raises(InvalidRequest, match="too long"):
        made(renewers=(Principal(USER, "x" * 4000),))


def test_tokens_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    image = applied(MetadataImage(), *create_token(MetadataImage(), TOKEN))
    monkeypatch.setattr(token_changes, "REQUESTER_TOKENS_MAX", 1)
    with pytest.raises(PolicyViolation, match="too many"):
        create_token(image, replace(TOKEN, token_id="id-2"))
    other = replace(TOKEN, token_id="id-2", requester=EVE)
    image = applied(image, *create_token(image, other))
    monkeypatch.setattr(token_changes, "TOKENS_MAX", 2)
    with pytest.raises(PolicyViolation, match="too many"):
        create_token(image, replace(TOKEN, token_id="id-3", requester=ALICE))


def test_a_renewal_ends_with_the_longest_life() -> None:
    renew = token_changes.renew_token
    for principal in (ALICE, BOB):
        found = renew(TOKEN, principal, 2000, 500)
        assert found.expiry_ms == 2500
    assert renew(TOKEN, ALICE, 2000, 99_999).expiry_ms == 9000
    with pytest.raises(DelegationTokenNotFound):
        renew(None, ALICE, 2000, 500)
    with pytest.raises(DelegationTokenOwnerMismatch):
        renew(TOKEN, EVE, 2000, 500)
    with pytest.raises(DelegationTokenExpired):
        renew(TOKEN, EVE, 5001, 500)


def test_a_negative_period_removes_even_an_expired_token() -> None:
    expire = token_changes.expire_token
    assert expire(TOKEN, ALICE, 6000, -1) is None
    found = expire(TOKEN, BOB, 2000, 100)
    assert found is not None
    assert found.expiry_ms == 2100
    with pytest.raises(DelegationTokenExpired):
        expire(TOKEN, ALICE, 6000, 0)
    with pytest.raises(DelegationTokenOwnerMismatch):
        expire(TOKEN, EVE, 6000, -1)
    with pytest.raises(DelegationTokenNotFound):
        expire(None, ALICE, 2000, -1)


def test_expired_tokens_are_removed() -> None:
    lasting = replace(TOKEN, token_id="id-2", expiry_ms=9000)
    image = applied(MetadataImage(), token_record(TOKEN), token_record(lasting))
    assert token_changes.remove_expired(image, 5000) == []
    assert token_changes.remove_expired(image, 5001) == [RemoveDelegationTokenRecord("id-1")]
